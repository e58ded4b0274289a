package main

import (
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLoggers write to w. In log, a message that repeats is written ten times a
// second and then one in a hundred: a flood of refusals must not become one of
// lines. access writes every line.
func newLoggers(config logConfig, w io.Writer) (log, access *zap.Logger, err error) {
	level, err := zapcore.ParseLevel(config.Level)
	if err != nil {
		return nil, nil, err
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey, encoding.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.SecondsDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if config.Format == "console" {
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	out := zapcore.Lock(zapcore.AddSync(w))
	sampled := zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, out, level), time.Second, 10, 100)
	return zap.New(sampled), zap.New(zapcore.NewCore(encoder, out, zapcore.InfoLevel)), nil
}
