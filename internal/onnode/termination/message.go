package termination

import (
	"errors"
	"io/fs"
	"os"
)

// WriteMessage writes the reason of a failure to the termination message.
func WriteMessage(path string, reason error) error { return WriteText(path, reason.Error()) }

// WriteText writes the termination message. It never creates that file: outside a container it does not exist, and
// nothing would read it.
func WriteText(path, text string) error {
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
