package cuda

import (
	_ "embed"
	"fmt"
	"math"
)

// ptx is the kernel's source, which the driver compiles. The driver reads it up to a NUL.
//
//go:embed vector_add.ptx
var ptx string

const (
	// entry is the kernel's name in ptx.
	entry = "vector_add"
	// count is how many numbers are added. It is odd, so that the last block is not full.
	count = 10007
	// width is the number of threads in a block, blocks the number of blocks.
	width  = 256
	blocks = (count + width - 1) / width
	// padded is the length of each buffer: as many elements as there are threads, to check that the threads
	// beyond count write nothing.
	padded = width * blocks
	// rounds is how often the kernel runs. The second round detects a device that returns an earlier result.
	rounds = 2
)

// poison is in the result before each launch, to find elements that are not written. It is NaN, which no sum of
// the inputs is.
var poison = math.Float32frombits(math.MaxUint32)

// inputs returns the addends of a round. All sums differ from each other, from both addends and from 0.
func inputs(round int) (a, b []float32) {
	a, b = make([]float32, padded), make([]float32, padded)
	for i := range padded {
		step := float32(i)
		if round == 0 {
			a[i], b[i] = step+0.5, 2*step+0.25
		} else {
			// Sums that must be rounded.
			a[i], b[i] = 1/(step+3), -1.7*(step+1)
		}
	}
	return a, b
}

// poisoned returns the content of the result before a launch.
func poisoned() []float32 {
	sum := make([]float32, padded)
	for i := range sum {
		sum[i] = poison
	}
	return sum
}

// verify compares the sums with those of this processor. Both round an addition to the nearest number, so the
// results are the same to the last bit.
func verify(round int, a, b, sum []float32) error {
	for i := range count {
		if want := a[i] + b[i]; sum[i] != want {
			return fmt.Errorf("computes wrong numbers: in round %d, element %d of %d is %v where %v + %v is %v; "+
				"see the kernel log for Xid errors, reset the GPU, and have it replaced if this repeats",
				round+1, i, count, sum[i], a[i], b[i], want)
		}
	}
	for i := count; i < padded; i++ {
		if math.Float32bits(sum[i]) != math.Float32bits(poison) {
			return fmt.Errorf("writes beyond its data: in round %d, element %d after the last of %d is %v; "+
				"see the kernel log for Xid errors, reset the GPU, and have it replaced if this repeats",
				round+1, i-count+1, count, sum[i])
		}
	}
	return nil
}
