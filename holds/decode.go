package holds

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"

	"holdfast/internal/http1"
)

const (
	maxDecoded = 1 << 20 // what a coded body may become
	maxCodings = 3       // on one body: each is another pass over up to maxDecoded
)

// Decode takes the codings off an answer's body (RFC 9110 §8.4): gzip, deflate
// and br, as middleware of the app puts them on. A body without any is returned
// itself. Errors are of an unknown coding, of more than three, of a body that is not
// in its coding, and of one that would have more than 1 MiB.
func Decode(fields []http1.Field, body []byte) ([]byte, error) {
	if len(body) == 0 {
		return body, nil // of an answer that has none, whatever it would be in
	}
	var codings []string
	for _, f := range fields {
		if !http1.EqualFold(f.Name, "content-encoding") {
			continue
		}
		for list := f.Value; ; {
			coding, rest, ok := http1.NextElement(list)
			if !ok {
				break
			}
			if codings, list = append(codings, string(coding)), rest; len(codings) > maxCodings {
				return nil, fmt.Errorf("the answer has more than %d Content-Encodings, one on the other; one is enough", maxCodings)
			}
		}
	}
	for i := len(codings) - 1; i >= 0; i-- { // the last was put on last
		var err error
		if body, err = decodeOne(codings[i], body); err != nil {
			return nil, err
		}
	}
	return body, nil
}

func decodeOne(coding string, body []byte) ([]byte, error) {
	var r io.Reader
	var err error
	in := bytes.NewReader(body)
	switch name := []byte(coding); {
	case len(name) == 0, http1.EqualFold(name, "identity"):
		return body, nil
	case http1.EqualFold(name, "gzip"), http1.EqualFold(name, "x-gzip"):
		r, err = gzip.NewReader(in)
	case http1.EqualFold(name, "deflate"):
		if r, err = zlib.NewReader(in); err != nil { // what some send by that name
			r, err = flate.NewReader(bytes.NewReader(body)), nil
		}
	case http1.EqualFold(name, "br"):
		r = brotli.NewReader(in)
	default:
		return nil, fmt.Errorf("the answer has the Content-Encoding %.40q; gzip, deflate and br are understood, or take it off this view", coding)
	}
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(r, maxDecoded+1))
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer is not in its Content-Encoding %s: %w", coding, err)
	case len(body) > maxDecoded:
		return nil, errors.New("the answer has more than 1 MiB of body without its Content-Encoding; send less, and publish the rest")
	}
	return body, nil
}
