// A program that prints when it was started, in nanoseconds since the machine was: a clock that all processes share,
// and that is never set.
package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func main() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	fmt.Println(now.Nano())
}
