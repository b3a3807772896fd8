// A stand-in for nvidia-smi that needs no loader, for tests in a chroot: it exits with the code in
// the file /exit-code of its root, with 0 if there is none.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	fmt.Println("| NVIDIA-SMI 580.95.05 |")
	content, err := os.ReadFile("/exit-code")
	if err != nil {
		return
	}
	code, err := strconv.Atoi(string(content))
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}
