package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	procDir = "/proc"
	// tick is the unit of CPU times in /proc: USER_HZ is 100 wherever Go runs.
	tick = 10 * time.Millisecond
)

// Usage of a process.
type Usage struct {
	PID int
	// CPU time since the process began, in user and kernel mode.
	CPU time.Duration
	// Resident memory now, and its highest so far, in bytes.
	Resident, Peak int64
}

// Processes are the usages of processes by the name of their program.
type Processes map[string]Usage

// ReadProcesses reads this process's usage and that of its children. Of several
// children with one program the last one started counts.
func ReadProcesses() (Processes, error) {
	entries, err := os.ReadDir(procDir)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}

	found := Processes{}

	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}

		name, usage, err := readProcess(pid)

		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errStranger):
			continue
		case err != nil:
			return nil, err
		}

		if usage.PID > found[name].PID {
			found[name] = usage
		}
	}

	return found, nil
}

var errStranger = errors.New("a process that this one has not started")

func readProcess(pid int) (name string, usage Usage, err error) {
	dir := filepath.Join(procDir, strconv.Itoa(pid))

	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		// A process may end between the list and the look, which is reported as
		// "no such process" rather than "no such file".
		return "", Usage{}, fs.ErrNotExist
	}

	parent, cpu, err := parseStat(string(stat))
	if err != nil {
		return "", Usage{}, err
	}

	if self := os.Getpid(); pid != self && parent != self {
		return "", Usage{}, errStranger
	}

	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return "", Usage{}, fs.ErrNotExist
	}

	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return "", Usage{}, fs.ErrNotExist
	}

	resident, peak, err := parseStatus(string(status))
	if err != nil {
		return "", Usage{}, err
	}

	return filepath.Base(program), Usage{PID: pid, CPU: cpu, Resident: resident, Peak: peak}, nil
}

// parseStat reads /proc/PID/stat: the parent and the CPU time.
func parseStat(content string) (parent int, cpu time.Duration, err error) {
	// The second field is the program's name in parentheses, and may hold
	// spaces and parentheses itself.
	end := strings.LastIndexByte(content, ')')
	fields := strings.Fields(content[end+1:])

	if end < 0 || len(fields) < 13 {
		return 0, 0, fmt.Errorf("cannot understand a process's stat %q", content)
	}

	// Fields 4, 14 and 15 of proc(5); what is left begins with the third.
	parent, parentErr := strconv.Atoi(fields[1])
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)

	if err := errors.Join(parentErr, userErr, systemErr); err != nil {
		return 0, 0, fmt.Errorf("cannot understand a process's stat: %w", err)
	}

	return parent, time.Duration(user+system) * tick, nil
}

// parseStatus reads /proc/PID/status: the memory. A process that is about to
// end has none.
func parseStatus(content string) (resident, peak int64, err error) {
	for line := range strings.Lines(content) {
		name, value, _ := strings.Cut(line, ":")

		var into *int64

		switch name {
		case "VmRSS":
			into = &resident
		case "VmHWM":
			into = &peak
		default:
			continue
		}

		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")

		kilobytes, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !ok {
			return 0, 0, fmt.Errorf("cannot understand %q in a process's status", strings.TrimSpace(line))
		}

		*into = kilobytes << 10
	}

	return resident, peak, nil
}

// Since gives the CPU time used after an earlier look; memory is as it is now.
// A process that was started in between counts from its start; one that has
// exited does not count.
func (p Processes) Since(before Processes) Processes {
	grown := maps.Clone(p)

	for name, usage := range p {
		if was := before[name]; was.PID == usage.PID {
			usage.CPU -= was.CPU
			grown[name] = usage
		}
	}

	return grown
}

// Names of the processes in alphabetical order.
func (p Processes) Names() []string { return slices.Sorted(maps.Keys(p)) }

// CPU time of all processes.
func (p Processes) CPU() time.Duration {
	var total time.Duration
	for _, usage := range p {
		total += usage.CPU
	}

	return total
}
