package manifest

// Exported for tests.
var (
	DecodeContainer = decodeContainer
	AddVolumes      = addVolumes
)

// KeptReads is after how many reads of other files one is forgotten.
const KeptReads = keptReads

// DecodedFiles remembers the objects of decoded files.
type DecodedFiles struct{ files decodedFiles }

// Objects returns the objects of a file.
func (d *DecodedFiles) Objects(text []byte) ([]Object, error) { return d.files.objects(text) }

// Len is how many files are remembered.
func (d *DecodedFiles) Len() int { return len(d.files.byText) }
