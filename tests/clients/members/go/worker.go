// Workers on clients for Go: twins of worker.py, with the same argument and the same JSON lines.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const workEvery = 250 * time.Millisecond
const patience = 5 * time.Second

// Key names a partition.
type Key struct {
	Topic     string
	Partition int32
}

func (key Key) String() string { return fmt.Sprintf("%s/%d", key.Topic, key.Partition) }

// Told is what a member is to subscribe to, and its settings by Kafka's names.
type Told struct {
	Subscribe []string
	Config    map[string]any
}

func (told Told) text(name string) string {
	value, _ := told.Config[name].(string)
	return value
}

func (told Told) duration(name string, otherwise time.Duration) time.Duration {
	if value, ok := told.Config[name].(float64); ok {
		return time.Duration(value) * time.Millisecond
	}
	return otherwise
}

var output sync.Mutex

// now reads the machine's monotonic clock, the same in all processes.
func now() float64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return float64(at.Nano()) / 1e9
}

func say(what string, fields map[string]any) {
	output.Lock()
	defer output.Unlock()
	line := map[string]any{"at": now(), "what": what}
	for name, value := range fields {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// Offsets is how a client reads and writes them.
type Offsets interface {
	read(keys []Key) (map[Key]int64, error) // -1 where there is none
	write(offsets map[Key]int64) error
}

// Worker holds partitions from assigned to revoked.
type Worker struct {
	mutex   sync.Mutex
	client  Offsets
	offsets map[Key]int64 // -1 until it is known where to resume
}

func names(keys []Key) []string {
	out := []string{}
	for _, key := range keys {
		out = append(out, key.String())
	}
	return out
}

func named(offsets map[Key]int64) map[string]int64 {
	out := map[string]int64{}
	for key, offset := range offsets {
		out[key.String()] = offset
	}
	return out
}

func keysOf(partitions map[string][]int32) []Key {
	keys := []Key{}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			keys = append(keys, Key{topic, number})
		}
	}
	return keys
}

func (w *Worker) assigned(keys []Key, member string, epoch int32) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	say("assign", map[string]any{"partitions": names(keys), "member": member, "epoch": epoch})
	for _, key := range keys {
		w.offsets[key] = -1
	}
}

func (w *Worker) revoked(keys []Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.commit(keys)
	w.letGo("revoke", keys)
}

func (w *Worker) lost(keys []Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.letGo("lost", keys)
}

func (w *Worker) letGo(what string, keys []Key) {
	for _, key := range keys {
		delete(w.offsets, key)
	}
	say(what, map[string]any{"partitions": names(keys)})
}

func (w *Worker) work() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	fresh, known := []Key{}, []Key{}
	for key, offset := range w.offsets {
		if offset < 0 {
			fresh = append(fresh, key)
		}
	}
	w.resume(fresh)
	for key, offset := range w.offsets {
		if offset >= 0 {
			w.offsets[key] = offset + 1
			known = append(known, key)
		}
	}
	w.commit(known)
}

func (w *Worker) resume(keys []Key) {
	if len(keys) == 0 {
		return
	}
	found, err := w.client.read(keys)
	if err != nil {
		say("error", map[string]any{"message": err.Error()})
		return
	}
	for key, offset := range found {
		w.offsets[key] = max(offset, 0)
		say("resume", map[string]any{"partition": key.String(), "offset": w.offsets[key]})
	}
}

func (w *Worker) commit(keys []Key) {
	offsets := map[Key]int64{}
	for _, key := range keys {
		if offset, held := w.offsets[key]; held && offset >= 0 {
			offsets[key] = offset
		}
	}
	if len(offsets) == 0 {
		return
	}
	began := now()
	say("try", map[string]any{"offsets": named(offsets)})
	if err := w.client.write(offsets); err != nil {
		say("refused", map[string]any{"began": began, "message": err.Error()})
		return
	}
	say("commit", map[string]any{"began": began, "offsets": named(offsets)})
}

// workUntil works again and again, until a channel is closed.
func (w *Worker) workUntil(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(workEvery):
			w.work()
		}
	}
}

func main() {
	var told Told
	if err := json.Unmarshal([]byte(os.Args[2]), &told); err != nil {
		panic(err)
	}
	stop := make(chan struct{})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		close(stop)
	}()
	members := map[string]func(Told, <-chan struct{}) error{
		"franz-go": franz, "sarama": saramaMember, "kafka-go": segmentio,
	}
	if err := members[os.Args[1]](told, stop); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say("closed", nil)
}
