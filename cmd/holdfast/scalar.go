package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a Go duration (`15s`, `1m30s`). A bare number has no unit and is refused, all but 0: it would be
// seconds to one reader and nanoseconds to the next.
type Duration time.Duration

// Size is a number of bytes, written plainly or in binary units (`64KiB`). MB and the like are refused: they are
// 10^6 to one reader and 2^20 to the next.
type Size int64

// text is a scalar that says for itself how it is written. set's error goes on where the sentence's quoted value ends.
type text interface{ set(string) error }

var (
	bareNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	days       = regexp.MustCompile(`^([0-9]{1,5})d$`)
	wholeText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	sizeText   = regexp.MustCompile(`^(0|[1-9][0-9]*)(|B|KiB|MiB|GiB|TiB)$`)
	otherSize  = regexp.MustCompile(`^([1-9][0-9]*) ?([kKmMgGtT])[iI]?[bB]?$`)
	sizeUnits  = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
)

func (d *Duration) set(s string) error {
	if s == "" {
		return errors.New("is empty where a duration is needed (write 30s)")
	}
	if strings.HasPrefix(s, "-") {
		return errors.New("is negative where a duration is needed (write 0 or more, as 30s)")
	}
	if parsed, err := time.ParseDuration(s); err == nil {
		*d = Duration(parsed)
		return nil
	}
	if bareNumber.MatchString(s) {
		return fmt.Errorf("has no unit (write %ss)", s)
	}
	if parts := days.FindStringSubmatch(s); parts != nil {
		number, _ := strconv.Atoi(parts[1])
		return fmt.Errorf("is not a duration: there is no unit d (write %dh)", number*24)
	}
	if low := strings.ToLower(s); low != s {
		if _, err := time.ParseDuration(low); err == nil {
			return fmt.Errorf("is not a duration: units are lower case (write %s)", low)
		}
	}
	return errors.New("is not a duration (write 500ms, 30s, 1m30s or 2h)")
}

func (d Duration) String() string { return time.Duration(d).String() }

func (z *Size) set(s string) error {
	if s == "" {
		return errors.New("is empty where a size is needed (write 64KiB)")
	}
	if strings.HasPrefix(s, "-") {
		return errors.New("is negative where a size is needed (write 64KiB)")
	}
	if parts := sizeText.FindStringSubmatch(s); parts != nil {
		number, err := strconv.ParseInt(parts[1], 10, 64)
		unit := sizeUnits[parts[2]]
		if err != nil || number > math.MaxInt64/unit {
			return errors.New("is too large a size to count (write fewer digits)")
		}
		*z = Size(number * unit)
		return nil
	}
	if parts := otherSize.FindStringSubmatch(s); parts != nil {
		return fmt.Errorf("is not a size: units are KiB, MiB, GiB and TiB (write %s%siB)", parts[1], strings.ToUpper(parts[2]))
	}
	return errors.New("is not a size (write whole bytes as 65536, or 64KiB, 10MiB or 1GiB)")
}

func (z Size) String() string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := Size(sizeUnits[unit]); z != 0 && z%size == 0 {
			return strconv.FormatInt(int64(z/size), 10) + unit
		}
	}
	return strconv.FormatInt(int64(z), 10)
}

func parseWhole(s string) (int64, error) {
	if s == "" {
		return 0, errors.New("is empty where a whole number is needed (write 8)")
	}
	if !wholeText.MatchString(s) {
		return 0, errors.New("is not a whole number (write decimal digits alone, as 8)")
	}
	number, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("is too large a number to count (write fewer digits)")
	}
	return number, nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("is neither true nor false (write one of them)")
}
