// Package holds keeps clients on the app's behalf: event streams, long polls
// and WebSockets that a view approved with a header and then left.
//
// Nothing of it is built yet. What an answer says with M0-* headers is taken
// out of it (package proxy) and has no effect.
package holds
