// Package layoutfile reads the names of the MIG layouts in files of mig-parted, as the MIG manager reads them. It is
// pure, and takes no more time and memory than the size of a file.
package layoutfile
