package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

// saramaGroup is what sarama calls back, and how a worker commits.
type saramaGroup struct {
	worker  *Worker
	admin   sarama.ClusterAdmin
	group   string
	session sarama.ConsumerGroupSession
}

func (s *saramaGroup) read(keys []Key) (map[Key]int64, error) {
	asked := map[string][]int32{}
	for _, key := range keys {
		asked[key.Topic] = append(asked[key.Topic], key.Partition)
	}
	found, err := s.admin.ListConsumerGroupOffsets(s.group, asked)
	if err != nil {
		return nil, err
	}
	out := map[Key]int64{}
	for _, key := range keys {
		block := found.GetBlock(key.Topic, key.Partition)
		if block == nil || block.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("no answer about %s", key)
		}
		out[key] = block.Offset
	}
	return out, nil
}

// write commits and reads back: sarama does not tell its caller what became of a commit.
func (s *saramaGroup) write(offsets map[Key]int64) error {
	keys := []Key{}
	for key, offset := range offsets {
		s.session.MarkOffset(key.Topic, key.Partition, offset, "")
		keys = append(keys, key)
	}
	s.session.Commit()
	found, err := s.read(keys)
	if err != nil {
		return err
	}
	for key, offset := range offsets {
		if found[key] != offset {
			return fmt.Errorf("%s is at %d, not %d", key, found[key], offset)
		}
	}
	return nil
}

func (s *saramaGroup) Setup(session sarama.ConsumerGroupSession) error {
	s.session = session
	s.worker.assigned(keysOf(session.Claims()), session.MemberID(), session.GenerationID())
	return nil
}

func (s *saramaGroup) Cleanup(session sarama.ConsumerGroupSession) error {
	s.worker.revoked(keysOf(session.Claims()))
	return nil
}

func (s *saramaGroup) ConsumeClaim(
	session sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim,
) error {
	<-session.Context().Done()
	return nil
}

// saramaMember is a member on sarama.
func saramaMember(told Told, stop <-chan struct{}) error {
	config := sarama.NewConfig()
	config.ClientID = told.text("client.id")
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = told.duration("session.timeout.ms", 10e9)
	config.Consumer.Group.Heartbeat.Interval = told.duration("heartbeat.interval.ms", 3e9)
	if instance := told.text("group.instance.id"); instance != "" {
		config.Consumer.Group.InstanceId = instance
	}
	client, err := sarama.NewClient(strings.Split(told.text("bootstrap.servers"), ","), config)
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroupFromClient(told.text("group.id"), client)
	if err != nil {
		return err
	}
	member := &saramaGroup{admin: admin, group: told.text("group.id")}
	member.worker = &Worker{offsets: map[Key]int64{}, client: member}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, told.Subscribe, member); err != nil {
				say("error", map[string]any{"message": err.Error()})
			}
		}
	}()
	member.worker.workUntil(stop)
	cancel()
	<-over
	return group.Close()
}
