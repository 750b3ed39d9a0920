/** Writes the league's table in Markdown. */
import { MEASURED_ROWS, STORM, TIMING } from './measured-rows.ts';
import type { SystemName } from './systems.ts';

/** What a server made of a row. */
export interface Cell {
  readonly text: string;
  readonly isMatch: boolean;
}

/** A row with what came of it. */
export interface Line {
  readonly title: string;
  readonly column: string;
  readonly ground: string;
  /** In the order of the servers. */
  readonly cells: readonly Cell[];
}

/** A server that took part. */
export interface Entrant {
  readonly name: SystemName;
  readonly version: string;
}

/** The whole outcome. */
export interface Outcome {
  readonly entrants: readonly Entrant[];
  readonly credentials: readonly Line[];
  readonly forwarding: readonly Line[];
  /** Who did not take part, and why. */
  readonly absent: readonly string[];
  /** The machine, for the measured rows. */
  readonly machine: readonly string[];
  /** Share of all cores that others took just before the run. */
  readonly busyBefore: number;
}

/** The whole page. */
export function toReport(outcome: Outcome): string {
  const { entrants, credentials, forwarding, absent, machine } = outcome;
  return `${[
    '# The conformance league',
    '',
    'Written by `npm run league`; do not edit. It starts each server with its configuration in `league/peers/`, sends it the same bytes by raw',
    'sockets, and reads the answer and what the app behind it received, byte by byte. As root on Debian or Ubuntu it installs nginx, HAProxy and',
    'httpd by package name, and builds Caddy where Go is installed.',
    '',
    ...entrants.map(({ name, version }) => `- ${name} ${version}`),
    ...absent.map((line) => `- ${line}`),
    ...machine.map((line) => `- ${line}`),
    `- just before the run other work took ${(outcome.busyBefore * 100).toFixed(0)} % of the cores`,
    '',
    '## Matches',
    '',
    ...toScores(outcome),
    '',
    `The tables have ${credentials.length} and ${forwarding.length} rows, each counts as one. (The two orders of two Authorization lines come under one rule; by rules there`,
    `is one less.) An outcome is a match only if it is word for word one that sidegate promises. That is not the same as right and wrong:`,
    '',
    '- Where the last column names an RFC, its section asks for that outcome, or does not allow what was sent; a server may still try to make',
    '  sense of it (RFC 9110 §2.4).',
    '- Where it says policy, the RFCs leave the choice open; what stands in brackets is the nearest they say. Another server may have made the',
    '  other choice on purpose, or leave it to its configuration.',
    '',
    '## How credentials are read',
    '',
    'User `u` has the password `p:q`. 200 is let in.',
    '',
    ...toTable(credentials, entrants),
    '',
    '## What the app receives',
    '',
    'Every request has the right credentials. *As is*: the path reaches the app as it was sent.',
    '',
    ...toTable(forwarding, entrants),
    '',
    ...NOTES,
  ].join('\n')}\n`;
}

const [TIMING_ROW, STORM_ROW] = MEASURED_ROWS;
const NOTES: readonly string[] = [
  '## How it is played',
  '',
  '- Each server asks for a password on every path, tells the app the user as `X-Forwarded-User` (replacing what a client says) and the',
  '  client’s address as `X-Forwarded-For`, by the directives that its own manual has for that. All else is its default; httpd has',
  '  `TraceEnable Off`, as Debian ships it. All of them could be told to remove more fields, and some to refuse more requests.',
  '- Plain HTTP on loopback for all, as no row is about TLS; so sidegate has `requireTls: false`.',
  '- “identity kept or 400”: a `Connection` that names the identity field must not take it away. sidegate refuses it.',
  '- `//b` reaching the app as `/b` is a match, as the path is then merged before it is matched.',
  `- “${TIMING_ROW?.title}”: medians of ${TIMING.samples} guesses at each (fewer where they take more than`,
  `  ${TIMING.seconds} s), no two alike, in turns, each on a connection of its own. The hashes are bcrypt of cost 4 and 11. Of ${TIMING.rounds} rounds the one that took`,
  '  the least time in all. The gap is that between the highest and the lowest median.',
  `- “${STORM_ROW?.title}”: ${STORM.connections} connections guess the password of the cost-11 user without a pause; meanwhile`,
  `  ${STORM.probes} requests without credentials come at a fixed pace, one in ${STORM.everyMs} ms, each measured from when it was due. Medians of ${STORM.rounds} rounds.`,
  '  The 99th percentile is shown and does not count: on a busy machine it tells more about the neighbours.',
  '- sidegate’s limit on guesses is off where it is measured (`/measured`): with its default, guessing is over after ten.',
  '- Measured rows differ from run to run, and the load shares the cores with the server; all other rows are the same each time.',
];

function toScores({ entrants, credentials, forwarding }: Outcome): string[] {
  const all = [...credentials, ...forwarding];
  const isAsked = ({ ground }: Line): boolean => ground.startsWith('RFC');
  const count = (lines: readonly Line[], place: number): string =>
    `${lines.filter(({ cells }) => cells[place]?.isMatch === true).length} of ${lines.length}`;
  return toMarkdown([
    ['server', 'all rows', 'asked for by an RFC', 'policy'],
    ...entrants.map(({ name }, place) => [
      name,
      count(all, place),
      count(all.filter(isAsked), place),
      count(
        all.filter((line) => !isAsked(line)),
        place,
      ),
    ]),
  ]);
}

function toTable(lines: readonly Line[], entrants: readonly Entrant[]): string[] {
  return toMarkdown([
    ['the client sends', 'sidegate promises', ...entrants.map(({ name }) => name), 'asked for by'],
    ...lines.map(({ title, column, ground, cells }) => [
      title,
      column,
      ...cells.map(({ text, isMatch }) => (isMatch ? text : `✗ ${text}`)),
      ground,
    ]),
  ]);
}

function toMarkdown(rows: readonly (readonly string[])[]): string[] {
  const [head = [], ...others] = rows;
  return [head, head.map(() => '---'), ...others].map((cells) => `| ${cells.join(' | ')} |`);
}
