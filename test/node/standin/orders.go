//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ordersDir is where every container finds the orders, a file for each part that has some.
const ordersDir = "/stand-in-orders"

// order is how a test makes a part behave, each time that it starts.
type order struct {
	// Delay is how long it takes before it does anything, with a unit; RandomDelay adds up to that.
	Delay, RandomDelay string
	// Fault is exit, hang or memory: it ends with an error, does nothing until the order is withdrawn, or
	// uses all memory.
	Fault string
	// Message is what it prints when it exits, Code the exit code; 0 means 1.
	Message string
	Code    int
}

// follow carries out the orders of a part that is starting.
func follow(part string) error {
	content, err := os.ReadFile(filepath.Join(ordersDir, part+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	var o order
	if err := json.Unmarshal(content, &o); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	delay, err := duration(o.Delay)
	if err != nil {
		return err
	}
	random, err := duration(o.RandomDelay)
	if err != nil {
		return err
	}
	if random > 0 {
		delay += rand.N(random)
	}
	time.Sleep(delay)
	switch o.Fault {
	case "":
		return nil
	case "exit":
		return failure{error: errors.New(o.Message), code: o.Code}
	case "hang":
		return untilTakenBack(part)
	case "memory":
		return takeMemory()
	default:
		return fmt.Errorf("unknown fault %q", o.Fault)
	}
}

// untilTakenBack waits until the part has no orders. A signal before that ends it like a program that does not handle
// signals.
func untilTakenBack(part string) error {
	signals := ended()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-signals:
			return failure{error: errors.New("ended by a signal"), code: 128 + int(syscall.SIGTERM)}
		case <-look.C:
			if _, err := os.Stat(filepath.Join(ordersDir, part+".json")); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
	}
}

func duration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text)
}

// takeMemory allocates memory until the kernel kills it. Without a limit it stops before the machine suffers.
func takeMemory() error {
	var taken [][]byte
	for range 256 {
		page := make([]byte, 16<<20)
		for i := 0; i < len(page); i += 4096 {
			page[i] = 1
		}
		taken = append(taken, page)
	}
	return fmt.Errorf("%d pieces of memory were taken, and nothing stopped it; give the container a limit", len(taken))
}
