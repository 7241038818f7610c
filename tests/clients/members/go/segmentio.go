package main

import (
	"context"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// generation is what kafka-go hands out: partitions with their offsets, until the next rebalance.
type generation struct{ *kafka.Generation }

func (g generation) read(keys []Key) (map[Key]int64, error) {
	out := map[Key]int64{}
	for topic, partitions := range g.Assignments {
		for _, one := range partitions {
			out[Key{topic, int32(one.ID)}] = one.Offset
		}
	}
	return out, nil
}

func (g generation) write(offsets map[Key]int64) error {
	asked := map[string]map[int]int64{}
	for key, offset := range offsets {
		if asked[key.Topic] == nil {
			asked[key.Topic] = map[int]int64{}
		}
		asked[key.Topic][int(key.Partition)] = offset
	}
	return g.CommitOffsets(asked)
}

// segmentio is a member on segmentio/kafka-go.
func segmentio(told Told, stop <-chan struct{}) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                told.text("group.id"),
		Brokers:           strings.Split(told.text("bootstrap.servers"), ","),
		Dialer:            &kafka.Dialer{ClientID: told.text("client.id"), Timeout: 10 * time.Second},
		Topics:            told.Subscribe,
		SessionTimeout:    told.duration("session.timeout.ms", 30*time.Second),
		HeartbeatInterval: told.duration("heartbeat.interval.ms", 3*time.Second),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
		group.Close()
	}()
	over := make(chan struct{})
	close(over)
	for {
		one, err := group.Next(ctx)
		if ctx.Err() != nil || err == kafka.ErrGroupClosed {
			<-over
			return nil
		}
		if err != nil {
			say("error", map[string]any{"message": err.Error()})
			continue
		}
		given := []Key{}
		for topic, partitions := range one.Assignments {
			for _, partition := range partitions {
				given = append(given, Key{topic, int32(partition.ID)})
			}
		}
		worker := &Worker{offsets: map[Key]int64{}, client: generation{one}}
		worker.assigned(given, one.MemberID, one.ID)
		over = make(chan struct{})
		held := over
		one.Start(func(ctx context.Context) {
			defer close(held)
			worker.workUntil(ctx.Done())
			worker.revoked(given)
		})
	}
}
