package termination

import (
	"errors"
	"io/fs"
	"os"
)

// WriteMessage writes the termination message of the container. It never creates that file: outside a container it does
// not exist, and nothing would read it.
func WriteMessage(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	_, err = file.WriteString(text + "\n")
	return errors.Join(err, file.Close())
}
