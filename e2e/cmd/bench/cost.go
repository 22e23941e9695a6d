package main

import (
	"strconv"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/report"
)

// figures adds a cost to the scenario's result: its processes, and its requests
// in total and per unit of what was done, such as "object" or "refresh".
func (b *bench) figures(c cost, units int, unit string) {
	b.processes("Processes", c.processes, c.wall, units, unit)
	b.result.Tables = append(b.result.Tables, countsTable("Requests of the API server, without the benchmark's own and watches", c.requests, units, unit))

	if b.backend != nil {
		b.result.Tables = append(b.result.Tables, countsTable("Requests of Vault", c.backend, units, unit))
	}
}

// processes adds the table of what processes used in a time.
func (b *bench) processes(title string, used measure.Processes, wall time.Duration, units int, unit string) {
	table := report.Table{Title: title, Columns: []string{"process", "CPU", "share of a core", "CPU per " + unit, "peak memory"}}

	row := func(name string, cpu time.Duration, peak string) {
		table.Rows = append(table.Rows, []string{
			name,
			report.Number(cpu.Seconds()) + " s",
			report.Number(percent(cpu.Seconds(), wall.Seconds())) + " %",
			report.Number(float64(cpu)/float64(time.Millisecond)/float64(units)) + " ms",
			peak,
		})
	}

	for _, name := range used.Names() {
		row(name, used[name].CPU, report.Number(mebibytes(used[name].Peak))+" MiB")
	}

	row("total", used.CPU(), "")

	b.result.Tables = append(b.result.Tables, table)
}

func countsTable(title string, counts measure.Counts, units int, unit string) report.Table {
	table := report.Table{Title: title, Columns: []string{"request", "number", "per " + unit}}

	for _, name := range counts.Names() {
		table.Rows = append(table.Rows, []string{name, strconv.Itoa(counts[name]), report.Number(float64(counts[name]) / float64(units))})
	}

	total := counts.Total()
	table.Rows = append(table.Rows, []string{"total", strconv.Itoa(total), report.Number(float64(total) / float64(units))})

	return table
}

// latencies adds the spread of latencies to the scenario's result.
func (b *bench) latencies(what string, of []time.Duration) {
	b.result.Figure(what+": number", float64(len(of)), "")

	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"longest", 1}} {
		b.result.Duration(what+": "+q.name, measure.Quantile(of, q.of))
	}
}

func mebibytes(bytes int64) float64 { return float64(bytes) / mebibyte }

// percent of nothing is nothing.
func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}

	return 100 * part / whole
}
