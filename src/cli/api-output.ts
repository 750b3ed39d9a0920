/** How commands show what an API returns: JSON, tables, and the progress of long repairs. */

import { toPrintable } from '../core/text.ts';
import type { AttemptView } from '../provider/api/schemas.ts';
import type { Io } from './io.ts';

/** A column: its title, and how it shows a row. */
export type Column<Row> = readonly [title: string, show: (row: Row) => string];

const BAR_WIDTH = 30;
/** Plain progress lines: one for each tenth. */
const PLAIN_STEPS = 10;
const NONE = '-';

/** Aligned columns with titles. */
export function formatTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = [
    columns.map(([title]) => title),
    ...rows.map((row) => columns.map(([, show]) => toPrintable(show(row) || NONE))),
  ];
  const widths = columns.map((_, index) => cells.reduce((width, line) => Math.max(width, line[index]?.length ?? 0), 0));
  const lines = cells.map((line) => line.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  '));
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

/** One member per line, with aligned values. */
export function formatMembers(members: readonly (readonly [name: string, value: string | null | undefined])[]): string {
  const shown = members.filter(([, value]) => (value ?? '') !== '');
  const width = Math.max(...shown.map(([name]) => name.length)) + 2;
  return shown.map(([name, value]) => `${`${name}:`.padEnd(width)}${toPrintable(value ?? '')}\n`).join('');
}

/** `server_error (503)` */
export function formatOutcome({ outcome, status }: AttemptView): string {
  return status === undefined ? outcome : `${outcome} (${status})`;
}

/** Shows how far a repair is: as a bar on a terminal, else as a few lines. */
export class ProgressOutput {
  readonly #io: Io;
  readonly #what: string;
  #step = 0;
  #hasBar = false;

  /** `what`: what was done to those that are done. */
  constructor(io: Io, what: string) {
    this.#io = io;
    this.#what = what;
  }

  show(done: number, total: number): void {
    const share = total === 0 ? 1 : Math.min(done / total, 1);
    if (this.#io.isTerminal === true) {
      const filled = Math.round(share * BAR_WIDTH);
      const bar = `${'#'.repeat(filled)}${'.'.repeat(BAR_WIDTH - filled)}`;
      this.#io.stderr(`\r[${bar}] ${done} of ${total}`);
      this.#hasBar = true;
      return;
    }
    const step = Math.floor(share * PLAIN_STEPS);
    if (step <= this.#step) return;
    this.#step = step;
    this.#io.stderr(`${this.#what} ${done} of ${total}\n`);
  }

  /** Ends the bar's line. */
  end(): void {
    if (this.#hasBar) this.#io.stderr('\n');
  }
}
