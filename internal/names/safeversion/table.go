package safeversion

// Components are named as the operands that run them.
const (
	Driver       = "driver"
	Toolkit      = "container-toolkit"
	DevicePlugin = "device-plugin"
	MIGManager   = "mig-manager"
	DCGMExporter = "dcgm-exporter"
	DCGM         = "dcgm"
)

// Fix is a release of a component that fixes vulnerabilities of all earlier ones.
type Fix struct {
	Component string
	// Branch is the first number of the versions that the fix is for; 0 for all. Branches of the driver are fixed
	// separately, and no fix of a branch is for a driver of another one.
	Branch int
	// Version that is fixed.
	Version string
	// Vulnerabilities are CVE numbers; none where the bulletin has dozens.
	Vulnerabilities []string
	// Bulletin is the number of NVIDIA's security bulletin, and Date the month of it, empty where only the year is known,
	// which the numbers of the vulnerabilities have.
	Bulletin, Date string
}

// Fixes returns the table, of each component and branch the oldest release first. It is from NVIDIA's security
// bulletins as of 30 September 2026: for the driver those for Linux, and only branches that a bulletin names.
func Fixes() []Fix {
	return []Fix{
		{Driver, 535, "535.288.01", nil, "5747", "January 2026"},
		{Driver, 535, "535.309.01", nil, "5821", "May 2026"},
		{Driver, 570, "570.211.01", nil, "5747", "January 2026"},
		{Driver, 580, "580.126.09", nil, "5747", "January 2026"},
		{Driver, 580, "580.159.03", nil, "5821", "May 2026"},
		{Driver, 580, "580.178.04", nil, "5861", "September 2026"},
		{Driver, 590, "590.48.01", nil, "5747", "January 2026"},
		{Driver, 595, "595.71.05", nil, "5821", "May 2026"},
		{Driver, 595, "595.91.07", nil, "5861", "September 2026"},
		{Driver, 610, "610.57.04", nil, "5861", "September 2026"},
		{Driver, 615, "615.71.09", nil, "5861", "September 2026"},
		{Toolkit, 0, "1.16.2", []string{"CVE-2024-0132", "CVE-2024-0133"}, "5582", ""},
		{Toolkit, 0, "1.17.0", []string{"CVE-2024-0134"}, "5585", ""},
		{Toolkit, 0, "1.17.3", []string{"CVE-2024-0135", "CVE-2024-0136", "CVE-2024-0137"}, "5599", ""},
		{Toolkit, 0, "1.17.4", []string{"CVE-2025-23359"}, "5616", ""},
		{Toolkit, 0, "1.17.8", []string{"CVE-2025-23266", "CVE-2025-23267"}, "5659", ""},
		{Toolkit, 0, "1.19.1", []string{"CVE-2026-24260"}, "5850", "June 2026"},
		{DevicePlugin, 0, "0.17.3", []string{"CVE-2025-23266", "CVE-2025-23267"}, "5659", ""},
		{MIGManager, 0, "0.12.2", []string{"CVE-2025-23266", "CVE-2025-23267"}, "5659", ""},
		{DCGMExporter, 0, "4.8.3", []string{"CVE-2026-47483"}, "5857", "July 2026"},
		{DCGM, 0, "4.5.3", []string{"CVE-2026-47483"}, "5857", "July 2026"},
	}
}

// fields are where the spec sets the version of a component.
var fields = map[string]string{
	Driver: "spec.driver.version", Toolkit: "spec.toolkit.version", DevicePlugin: "spec.devicePlugin.version",
	MIGManager: "spec.migManager.version", DCGMExporter: "spec.dcgmExporter.version", DCGM: "spec.dcgm.version",
}
