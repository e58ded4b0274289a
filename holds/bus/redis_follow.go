package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisFollower is a source: Follow's own connection.
type redisFollower struct {
	redisLink
	foreign string // the stream's last entry that is none of ours: it is passed over
	past    int64  // its first number
}

func (f *redisFollower) read(ctx context.Context, after int64) (look, error) {
	return f.redisLink.read(ctx, after, takeEntries)
}

func (f *redisFollower) renew(ctx context.Context, unknown int64) error {
	_, err := f.call(ctx, "holdfast_renew", unknown, 1)
	return err
}

// wait has the engine answer with the next entry.
func (f *redisFollower) wait(ctx context.Context, after int64) ([]Entry, error) {
	from := strconv.FormatInt(after, 10) + "-0"
	if f.foreign != "" && f.past >= after {
		from = f.foreign
	}
	cmd := redis.NewXStreamSliceCmd(ctx, "xread", "count", 1, "block", pollTime().Milliseconds(), "streams", "{"+f.config.Name+"}:events", from)
	err := f.do(ctx, cmd)
	switch {
	case errors.Is(err, redis.Nil): // nothing: the log may have been lost, or old entries may go
		_, err = f.open(ctx)
		return nil, err
	case err != nil:
		return nil, err
	}
	for _, stream := range cmd.Val() {
		for _, m := range stream.Messages {
			if e, ours := messageEntry(m); ours {
				return []Entry{e}, nil
			}
			number, _, _ := strings.Cut(m.ID, "-")
			f.past, _ = strconv.ParseInt(number, 10, 64)
			f.foreign = m.ID
		}
	}
	return nil, nil
}

// messageEntry is an entry of the stream, if the functions made it.
func messageEntry(m redis.XMessage) (Entry, bool) {
	body, has := m.Values["body"].(string)
	prev, _ := m.Values["prev"].(string)
	at, _ := m.Values["at"].(string)
	id, one := strings.CutSuffix(m.ID, "-0")
	e, err := redisEntry(id, prev, at, body)
	return e, has && one && err == nil
}
