package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franzOffsets struct {
	client *kgo.Client
	group  string
}

func (f franzOffsets) read(keys []Key) (map[Key]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := kadm.NewClient(f.client).FetchOffsets(ctx, f.group)
	if err != nil {
		return nil, err
	}
	out := map[Key]int64{}
	for _, key := range keys {
		out[key] = -1
		if one, ok := found.Lookup(key.Topic, key.Partition); ok && one.Err == nil {
			out[key] = one.At
		}
	}
	return out, nil
}

func (f franzOffsets) write(offsets map[Key]int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	asked := map[string]map[int32]kgo.EpochOffset{}
	for key, offset := range offsets {
		if asked[key.Topic] == nil {
			asked[key.Topic] = map[int32]kgo.EpochOffset{}
		}
		asked[key.Topic][key.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	var failed error
	f.client.CommitOffsetsSync(ctx, asked, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		failed = err
		if answer == nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, one := range topic.Partitions {
				if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
					failed = err
				}
			}
		}
	})
	return failed
}

// franz is a member on franz-go.
func franz(told Told, stop <-chan struct{}) error {
	worker := &Worker{offsets: map[Key]int64{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(told.text("bootstrap.servers"), ",")...),
		kgo.ClientID(told.text("client.id")),
		kgo.ConsumerGroup(told.text("group.id")),
		kgo.ConsumeTopics(told.Subscribe...),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(told.duration("session.timeout.ms", 45e9)),
		kgo.HeartbeatInterval(told.duration("heartbeat.interval.ms", 3e9)),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, given map[string][]int32) {
			member, generation := client.GroupMetadata()
			worker.assigned(keysOf(given), member, generation)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			worker.revoked(keysOf(taken))
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
			worker.lost(keysOf(gone))
		}),
	}
	if instance := told.text("group.instance.id"); instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	worker.client = franzOffsets{client, told.text("group.id")}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx)
		}
	}()
	worker.workUntil(stop)
	cancel()
	client.Close()
	return nil
}
