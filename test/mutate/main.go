// Command mutate checks that the tests of packages notice a lost error: it drops the errors that the code returns or
// records, one at a time, and runs the tests of the package, each of which has to fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: go run ./test/mutate [flags] PACKAGE-DIRECTORY... [-- FLAGS-OF-THE-TEST-BINARY]

Drops one error at a time in each package and runs the tests of the package. A mutation that no test notices
survives; the command ends with status 1 if one does.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	recorders := flags.String("recorders", "fail",
		"methods that record an error, separated by commas; their calls are dropped")
	only := flags.String("only", "", "mutate only the places, written FILE:LINE, that this regular expression matches")
	list := flags.Bool("list", false, "list the mutations and run nothing")
	timeout := flags.Duration("timeout", 5*time.Minute,
		"time limit of one run of the tests; a run that exceeds it has failed")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("flag -only: %w", err)
	}
	directories, extra := split(flags.Args())
	if len(directories) == 0 {
		flags.Usage()
		return errors.New("no package directory given")
	}
	var survivors []string
	for _, directory := range directories {
		mutations, err := find(directory, strings.Split(*recorders, ","))
		if err != nil {
			return err
		}
		if *list {
			for _, m := range matching(mutations, chosen) {
				fmt.Println(m)
			}
			continue
		}
		survived, err := tryAll(ctx, directory, mutations, chosen,
			append([]string{"-test.timeout", timeout.String(), "-test.failfast"}, extra...))
		if err != nil {
			return err
		}
		survivors = append(survivors, survived...)
	}
	if len(survivors) > 0 {
		return fmt.Errorf("no test noticed:\n  %s", strings.Join(survivors, "\n  "))
	}
	return nil
}

// split separates the package directories from the flags of the test binary.
func split(args []string) (directories, extra []string) {
	for i, arg := range args {
		if arg == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

func matching(mutations []mutation, chosen *regexp.Regexp) []mutation {
	var found []mutation
	for _, m := range mutations {
		if chosen.MatchString(m.place()) {
			found = append(found, m)
		}
	}
	return found
}

// tryAll runs the tests of the package without a mutation, which must pass, and with each selected mutation. It
// returns the mutations that survive.
func tryAll(
	ctx context.Context, directory string, mutations []mutation, chosen *regexp.Regexp, args []string,
) ([]string, error) {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	runner := runner{directory: directory, binary: filepath.Join(scratch, "package.test"), args: args}
	if err := runner.build(ctx, scratch, mutations); err != nil {
		return nil, err
	}
	begin := time.Now()
	if passed, output, err := runner.try(ctx, 0); err != nil || !passed {
		return nil, errors.Join(fmt.Errorf("the tests of %s fail without a mutation:\n%s", directory, output), err)
	}
	mutations = matching(mutations, chosen)
	fmt.Printf("%s: %d mutations; one run takes %s\n", directory, len(mutations), time.Since(begin).Round(time.Second))
	var survivors []string
	for i, m := range mutations {
		passed, _, err := runner.try(ctx, m.number)
		if err != nil {
			return nil, err
		}
		verdict := "killed"
		if passed {
			verdict, survivors = "SURVIVED", append(survivors, m.String())
		}
		fmt.Printf("%3d/%d %-8s %s\n", i+1, len(mutations), verdict, m)
	}
	fmt.Printf("%s: %d/%d killed\n", directory, len(mutations)-len(survivors), len(mutations))
	return survivors, nil
}

// runner builds and runs the tests of one package.
type runner struct {
	directory, binary string
	args              []string
}

// build builds the tests with all mutations, of which a run enables one. A mutation that does not compile is an
// error.
func (b runner) build(ctx context.Context, scratch string, mutations []mutation) error {
	overlay, err := overlay(scratch, mutations)
	if err != nil {
		return err
	}
	compiler := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.binary, "-overlay", overlay, ".")
	compiler.Dir = b.directory
	if output, err := compiler.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s with mutations: %w\n%s", b.directory, err, output)
	}
	return nil
}

// try reports whether the tests pass with the mutation of this number; 0 is none.
func (b runner) try(ctx context.Context, number int) (passed bool, output []byte, err error) {
	tests := exec.CommandContext(ctx, b.binary, b.args...)
	tests.Dir = b.directory
	tests.Env = append(os.Environ(), fmt.Sprintf("%s=%d", selector, number))
	// The tests stop the processes that they have started.
	tests.Cancel = func() error { return tests.Process.Signal(os.Interrupt) }
	tests.WaitDelay = time.Minute
	output, err = tests.CombinedOutput()
	if ctx.Err() != nil {
		return false, output, ctx.Err()
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return false, output, err
	}
	return err == nil, output, nil
}
