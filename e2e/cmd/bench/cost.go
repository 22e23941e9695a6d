package main

import (
	"fmt"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/report"
)

// figures adds a cost to the scenario's result: its processes, and its requests
// in total and per unit of what was done, such as "object" or "refresh".
func (b *bench) figures(c cost, units int, unit string) {
	processes := report.Table{Title: "Processes", Columns: []string{"process", "CPU", "share of a core", "CPU per " + unit, "peak memory"}}

	for _, name := range c.processes.Names() {
		usage := c.processes[name]
		processes.Rows = append(processes.Rows, []string{
			name,
			report.Number(usage.CPU.Seconds()) + " s",
			report.Number(100*usage.CPU.Seconds()/c.wall.Seconds()) + " %",
			report.Number(float64(usage.CPU)/float64(time.Millisecond)/float64(units)) + " ms",
			report.Number(float64(usage.Peak)/mebibyte) + " MiB",
		})
	}

	b.result.Tables = append(b.result.Tables, processes, countsTable("Requests of the API server, without the benchmark's own and watches", c.requests, units, unit))

	if b.backend != nil {
		b.result.Tables = append(b.result.Tables, countsTable("Requests of Vault", c.backend, units, unit))
	}
}

func countsTable(title string, counts measure.Counts, units int, unit string) report.Table {
	table := report.Table{Title: title, Columns: []string{"request", "number", "per " + unit}}

	for _, name := range counts.Names() {
		table.Rows = append(table.Rows, []string{name, fmt.Sprint(counts[name]), report.Number(float64(counts[name]) / float64(units))})
	}

	total := counts.Total()
	table.Rows = append(table.Rows, []string{"total", fmt.Sprint(total), report.Number(float64(total) / float64(units))})

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
