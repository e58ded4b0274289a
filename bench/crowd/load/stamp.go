package main

import (
	"bytes"

	"holdfast/bench/crowd"
)

// longestStamp is more than a mark, the digits of a time and the end mark have.
const longestStamp = 32

var mark = []byte(crowd.Mark)

// stamps calls each with the time of every whole stamp in data and returns what
// may be the beginning of one that is not whole yet: what is to be put before
// the bytes that come next. A mark without a number behind it is no stamp.
func stamps(data []byte, each func(nanoseconds int64)) (rest []byte) {
	for {
		at := bytes.Index(data, mark)
		if at < 0 {
			if len(data) > 0 && data[len(data)-1] == mark[0] {
				return data[len(data)-1:]
			}
			return nil
		}
		time, length, whole := number(data[at+len(mark):])
		switch {
		case whole:
			each(time)
		case at+len(mark)+length == len(data) && length < longestStamp:
			return data[at:]
		}
		data = data[at+len(mark):]
	}
}

// number reads digits up to the end mark. length is how many digits there are;
// whole: the end mark follows them.
func number(text []byte) (value int64, length int, whole bool) {
	for i, c := range text {
		switch {
		case c >= '0' && c <= '9' && i < 19:
			value = value*10 + int64(c-'0')
		case c == crowd.EndMark && i > 0:
			return value, i, true
		default:
			return 0, i, false
		}
	}
	return 0, len(text), false
}
