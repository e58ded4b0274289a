package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

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
	out := zapcore.Lock(zapcore.AddSync(plainLines{w}))
	sampled := zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, out, level), time.Second, 10, 100)
	return zap.New(sampled), zap.New(zapcore.NewCore(encoder, out, zapcore.InfoLevel)), nil
}

// plainLines writes what a terminal or a reader of lines could take for more
// than text as JSON escapes: DEL, C1 controls, and the line ends of Unicode. What
// is below, the encoders escape themselves.
type plainLines struct{ w io.Writer }

func (p plainLines) Write(b []byte) (int, error) {
	if bytes.IndexFunc(b, isUnplain) < 0 {
		return p.w.Write(b)
	}
	var out []byte
	for _, r := range string(b) {
		if isUnplain(r) {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	_, err := p.w.Write(out)
	return len(b), err
}

func isUnplain(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029'
}
