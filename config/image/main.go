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
	o := options{}
	flag.StringVar(&o.rootfs, "rootfs", "", "directory that build.sh rootfs has filled")
	flag.StringVar(&o.out, "out", "", "file to write the image to; default: none")
	flag.StringVar(&o.name, "name", "", "name of the image, with its tag")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture that the programs are for")
	flag.StringVar(&o.version, "version", "dev", "version that the image tells")
	flag.StringVar(&o.revision, "revision", "unknown", "commit that the image tells")
	flag.StringVar(&o.base, "base", "", "image in a registry to put the files on; default: none")
	bill := flag.String("sbom", "", "file for a list of what the programs are made of, in the format CycloneDX; default: none")
	flag.Parse()
	if *bill != "" {
		if err := writeSBOM(o, *bill); err != nil {
			fmt.Fprintln(os.Stderr, "image:", err)
			os.Exit(1)
		}
	}
	if o.out == "" {
		return
	}
	digest, err := write(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}
