package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "release" {
		if err := releaseCommand(ctx, os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "digests" {
		if err := digestsCommand(ctx, os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "digests:", err)
			os.Exit(1)
		}
		return
	}
	o := options{}
	flag.StringVar(&o.rootfs, "rootfs", "", "directory that build.sh rootfs has filled")
	flag.StringVar(&o.out, "out", "", "file to write the image to; default: none")
	flag.StringVar(&o.name, "name", "", "name of the image, with a tag")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture of the programs")
	flag.StringVar(&o.version, "version", "dev", "version in the image's labels")
	flag.StringVar(&o.revision, "revision", "unknown", "commit in the image's labels")
	flag.StringVar(&o.base, "base", "", "image in a registry to put the files on; default: none")
	flag.BoolVar(&o.push, "push", false, "push the image to the registry in its name")
	bill := flag.String("sbom", "", "file to write the SBOM of the programs to, in CycloneDX format; default: none")
	flag.Parse()
	if *bill != "" {
		if err := writeSBOM(o, *bill); err != nil {
			fmt.Fprintln(os.Stderr, "image:", err)
			os.Exit(1)
		}
	}
	if o.out == "" && !o.push {
		return
	}
	digest, err := write(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}
