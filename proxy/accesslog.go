package proxy

import "go.uber.org/zap"

// logFault says once, at the edge, why a request was not served. What a
// client did wrong is of interest only to who looks for it.
func (c *clientConn) logFault(f *fault) {
	log := c.server.log.Warn
	if statusOf[f.reason] < 500 && f.reason != reasonStreamRefused {
		log = c.server.log.Debug
	}
	fields := []zap.Field{zap.String("reason", f.reason), zap.String("detail", f.text), zap.String("client", c.clientIP)}
	if f.lane != "" {
		fields = append(fields, zap.String("lane", f.lane))
	}
	if f.cause != nil {
		fields = append(fields, zap.Error(f.cause))
	}
	log("request refused", fields...)
}
