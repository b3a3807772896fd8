// Stand-in plays what containers run on a real node of the tests: NVIDIA's programs, and the pause program
// of every sandbox. It is one static file that plays the part by whose name it is started.
//
//   - pause runs until SIGTERM.
//   - echo prints its arguments.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := play(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(part string, args []string) error {
	switch part {
	case "pause":
		return pause()
	case "echo":
		fmt.Println(strings.Join(args, " "))
		return nil
	default:
		return fmt.Errorf("there is no part %q; start it by the name of the program that it is to play", part)
	}
}

func pause() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	return nil
}
