package measure

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine that the figures are those of.
type Machine struct {
	OS        string `json:"os"`
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	Memory    int64  `json:"memoryBytes"`
	GoVersion string `json:"goVersion"`
}

// ReadMachine describes this machine.
func ReadMachine() (Machine, error) {
	machine := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), GoVersion: runtime.Version()}

	memory, err := os.ReadFile(procDir + "/meminfo")
	if err != nil {
		return machine, fmt.Errorf("cannot read the machine's memory: %w", err)
	}

	total, ok := strings.CutSuffix(field(string(memory), "MemTotal"), " kB")

	kilobytes, err := strconv.ParseInt(total, 10, 64)
	if err != nil || !ok {
		return machine, fmt.Errorf("cannot understand the machine's memory %q", total)
	}

	machine.Memory = kilobytes << 10

	// Not every architecture names its CPU.
	if cpu, err := os.ReadFile(procDir + "/cpuinfo"); err == nil {
		machine.CPU = field(string(cpu), "model name")
	}

	return machine, nil
}

// field of a text of lines "name: value": the first one's value.
func field(content, name string) string {
	for line := range strings.Lines(content) {
		if found, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(found) == name {
			return strings.TrimSpace(value)
		}
	}

	return ""
}
