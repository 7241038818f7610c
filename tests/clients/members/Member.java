import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A worker on the Java client: the twin of librdkafka.py, with the same argument, and the
 * same JSON lines on standard output. System.nanoTime is the machine's monotonic clock there, too.
 */
public final class Member implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(20);
    private static final double WORK_S = 0.25;

    private final KafkaConsumer<byte[], byte[]> consumer;
    /** What it holds, and how far it came; null until it is known where to resume. */
    private final Map<TopicPartition, Long> offsets = new HashMap<>();
    private volatile boolean stop;

    private Member(JsonNode told) {
        Properties config = new Properties();
        config.put("group.protocol", "consumer");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        told.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        consumer = new KafkaConsumer<>(config);
        List<String> topics = new ArrayList<>();
        told.get("subscribe").forEach(topic -> topics.add(topic.asText()));
        if (topics.get(0).startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(topics.get(0)), this);
        } else {
            consumer.subscribe(topics, this);
        }
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void say(String what, Map<String, Object> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("at", now());
        line.put("what", what);
        line.putAll(fields);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
        System.out.flush();
    }

    private static String name(TopicPartition partition) {
        return partition.topic() + "/" + partition.partition();
    }

    private static List<String> names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(Member::name).toList();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(one -> offsets.put(one, null));
        var member = consumer.groupMetadata();
        say("assign", Map.of("partitions", names(partitions), "member", member.memberId(),
            "epoch", member.generationId()));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit(partitions);
        partitions.forEach(offsets::remove);
        say("revoke", Map.of("partitions", names(partitions)));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(offsets::remove);
        say("lost", Map.of("partitions", names(partitions)));
    }

    /** Do one more piece of each partition, and commit that. */
    private void work() {
        for (TopicPartition one : new ArrayList<>(offsets.keySet())) {
            if (offsets.get(one) == null) {
                resume(one);
            }
        }
        List<TopicPartition> known = offsets.keySet().stream().filter(p -> offsets.get(p) != null).toList();
        known.forEach(one -> offsets.merge(one, 1L, Long::sum));
        commit(known);
    }

    private void resume(TopicPartition one) {
        try {
            OffsetAndMetadata found = consumer.committed(java.util.Set.of(one)).get(one);
            long offset = found == null ? 0 : found.offset();
            offsets.put(one, offset);
            say("resume", Map.of("partition", name(one), "offset", offset));
        } catch (WakeupException woken) {
            stop = true;
        } catch (KafkaException error) {
            say("error", Map.of("message", error.toString()));
        }
    }

    private void commit(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        Map<String, Long> said = new TreeMap<>();
        for (TopicPartition one : partitions) {
            Long offset = offsets.get(one);
            if (offset != null) {
                done.put(one, new OffsetAndMetadata(offset));
                said.put(name(one), offset);
            }
        }
        if (done.isEmpty()) {
            return;
        }
        double began = now();
        say("try", Map.of("offsets", said));
        try {
            consumer.commitSync(done);
            say("commit", Map.of("began", began, "offsets", said));
        } catch (WakeupException woken) {
            stop = true;
        } catch (KafkaException error) {
            say("refused", Map.of("began", began, "message", error.getClass().getSimpleName()));
        }
    }

    private void run() {
        double nextWork = 0;
        while (!stop) {
            try {
                consumer.poll(POLL);
            } catch (WakeupException woken) {
                break;
            }
            if (now() >= nextWork) {
                work();
                nextWork = now() + WORK_S;
            }
        }
        consumer.close();
        say("closed", Map.of());
    }

    public static void main(String[] words) throws Exception {
        Member member = new Member(JSON.readTree(words[0]));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stop = true;
            member.consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            Runtime.getRuntime().halt(0); // asked to end, it ended well
        }));
        member.run();
    }
}
