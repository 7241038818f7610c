{{- define "muster.name" -}}
{{- if contains "muster" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-muster" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "muster.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "muster.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "muster.claim" -}}
{{- .Values.store.volume.claim | default (include "muster.name" .) -}}
{{- end -}}

{{- define "muster.sharded" -}}
{{- if gt (int .Values.store.shards) 1 }}yes{{ end -}}
{{- end -}}

{{- /* How probes and Prometheus ask: as the settings have it. */ -}}
{{- define "muster.scheme" -}}
{{- ternary "HTTPS" "HTTP" (regexMatch `(?m)^\s*(server\.)?http_tls\s*=\s*true\b` (tpl .Values.config .)) -}}
{{- end -}}

{{- /* What a Deployment and a StatefulSet share. */ -}}
{{- define "muster.pod" -}}
metadata:
  labels:
    {{- include "muster.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ tpl .Values.config . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "muster.account" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: muster
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        - --store
        - {{ .Values.store.url | default "/var/lib/muster/store" | quote }}
        - --config
        - /etc/muster/muster.toml
        - --listen
        - "0.0.0.0:{{ .Values.port }}"
        - --advertised
        {{- if include "muster.sharded" . }}
        - "$(POD_NAME).{{ include "muster.name" . }}-nodes.{{ .Release.Namespace }}.svc:{{ .Values.port }}"
        - --shards
        - {{ .Values.store.shards | int | quote }}
        - --node
        - "$(POD_INDEX)"
        {{- else }}
        - "{{ include "muster.name" . }}.{{ .Release.Namespace }}.svc:{{ .Values.port }}"
        {{- end }}
        - --http
        - "0.0.0.0:{{ .Values.httpPort }}"
        {{- if .Values.insecure }}
        - --insecure
        {{- end }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if include "muster.sharded" . }}
        - name: POD_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: kafka, containerPort: {{ .Values.port }}}
        - {name: http, containerPort: {{ .Values.httpPort }}}
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ include "muster.scheme" . }}}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ include "muster.scheme" . }}}
        periodSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ include "muster.scheme" . }}}
        periodSeconds: 2
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/muster, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        - {name: store, mountPath: /var/lib/muster}
        {{- range $name, $_ := .Values.secrets }}
        - {name: {{ printf "secret-%s" $name }}, mountPath: {{ printf "/etc/muster-secrets/%s" $name }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "muster.name" . }}}
    - name: tmp
      emptyDir: {}
    - name: store
      {{- if .Values.store.url }}
      emptyDir: {}
      {{- else }}
      persistentVolumeClaim: {claimName: {{ include "muster.claim" . }}}
      {{- end }}
    {{- range $name, $secret := .Values.secrets }}
    - name: {{ printf "secret-%s" $name }}
      secret: {secretName: {{ $secret }}, defaultMode: 0440}
    {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- with .Values.topologySpreadConstraints }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {app.kubernetes.io/name: muster, app.kubernetes.io/instance: {{ .Release.Name }}}}
    {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}
