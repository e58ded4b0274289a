package peer

import (
	"fmt"
	"syscall"
)

// RaiseDescriptors lets this process and all that it starts from now on have n
// descriptors open. Beyond the hard limit only root may; then the error says
// what to do.
func RaiseDescriptors(n uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	// Set although it may be there already: the Go runtime hands a limit on to
	// what it starts only if the program has set it.
	wanted := syscall.Rlimit{Cur: max(n, now.Cur), Max: max(n, now.Max)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wanted); err != nil {
		return fmt.Errorf("%d descriptors are needed and %d allowed (%w): ulimit -Hn %d as root, or run as root", n, now.Max, err, n)
	}
	return nil
}
