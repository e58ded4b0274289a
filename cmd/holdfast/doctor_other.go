//go:build !linux

package main

import "errors"

// What limits a process, and who listens on a socket, cannot be seen here.

func workersOnSocket(string) int { return 0 }

func memoryLimit(string) (bytes int64, hard bool) { return 0, false }

func roomIn(string) (free int64, inMemory bool, err error) { return 0, false, errors.ErrUnsupported }

func descriptorLimits() (soft, hard int) { return descriptorLimit(), descriptorLimit() }
