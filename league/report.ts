/** Writes the comparison as Markdown. */
import { toTable } from '../scripts/markdown.ts';
import { MEASURED_ROWS, STORM, TIMING } from './measured-rows.ts';
import type { SystemName } from './systems.ts';

/** The outcome of a row for one server. */
export interface Cell {
  readonly text: string;
  readonly isMatch: boolean;
}

/** A row with its outcomes. */
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
  /** Servers that did not take part, and why. */
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
    '# Conformance comparison',
    '',
    'Written by `npm run league`; do not edit. It starts each server with its configuration in `league/peers/` and sends it the same bytes over',
    'raw sockets. It records the response and the bytes that the app behind the server receives. As root on Debian or Ubuntu it installs nginx,',
    'HAProxy and httpd by package name, and builds Caddy if Go is installed.',
    '',
    ...entrants.map(({ name, version }) => `- ${name} ${version}`),
    ...absent.map((line) => `- ${line}`),
    ...machine.map((line) => `- ${line}`),
    `- just before the run, other processes used ${(outcome.busyBefore * 100).toFixed(0)} % of the cores`,
    '',
    '## Matches',
    '',
    toScores(outcome),
    `The tables have ${credentials.length} and ${forwarding.length} rows, and each counts as one. (Two rows test the same rule, with two Authorization`,
    `lines in different order.) An outcome is a match only if it is exactly one that sidegate promises. A mismatch is not always an error:`,
    '',
    '- If the last column names an RFC, its section requires that outcome, or forbids the request. A server may still try to interpret a',
    '  forbidden request (RFC 9110 §2.4).',
    '- If it says policy, the RFCs leave the choice open; the reference in brackets is the closest rule. Another server may have chosen the',
    '  other outcome on purpose, or leave it to its configuration.',
    '',
    '## Credentials',
    '',
    'User `u` has the password `p:q`. 200 means that the request was allowed.',
    '',
    toLines(credentials, entrants),
    '## Requests at the app',
    '',
    'Every request has the right credentials. *As is*: the path reaches the app unchanged.',
    '',
    toLines(forwarding, entrants),
    ...NOTES,
  ].join('\n')}\n`;
}

const [TIMING_ROW, STORM_ROW] = MEASURED_ROWS;
const NOTES: readonly string[] = [
  '## Method',
  '',
  '- Each server requires a password on every path. It passes the user to the app as `X-Forwarded-User` and the client’s address as',
  '  `X-Forwarded-For`, and replaces these fields of the client, with the directives from its manual. All other settings are defaults; httpd',
  '  has `TraceEnable Off`, as in Debian. All of them can be configured to remove more fields, and some to reject more requests.',
  '- All servers use plain HTTP on loopback, because no row is about TLS. Therefore sidegate has `requireTls: false`.',
  '- “identity kept or 400”: a `Connection` that names the identity field must not remove it. sidegate rejects such a request.',
  '- `//b` reaching the app as `/b` is a match, because the server then merges the slashes before it matches the path.',
  `- “${TIMING_ROW?.title}”: medians of ${TIMING.samples} guesses at each (fewer if they take more than`,
  `  ${TIMING.seconds} s), all different, in turns, each on a new connection. The hashes are bcrypt of cost 4 and 11. Of ${TIMING.rounds} rounds, the`,
  '  fastest one counts. The gap is the difference between the highest and the lowest median.',
  `- “${STORM_ROW?.title}”: ${STORM.connections} connections guess the password of the cost-11 user without a pause. Meanwhile,`,
  `  ${STORM.probes} requests without credentials arrive at a fixed rate, one every ${STORM.everyMs} ms, each measured from its due time. The figures are medians of ${STORM.rounds} rounds.`,
  '  The 99th percentile is shown but does not count: on a busy machine it depends mostly on other processes.',
  '- sidegate’s limit on guesses is off for the measurement (`/measured`): by default, it stops guessing after ten attempts.',
  '- Measured rows differ from run to run, and the load generator shares the cores with the server. All other rows are the same each time.',
];

function toScores({ entrants, credentials, forwarding }: Outcome): string {
  const all = [...credentials, ...forwarding];
  const isAsked = ({ ground }: Line): boolean => ground.startsWith('RFC');
  const count = (lines: readonly Line[], place: number): string =>
    `${lines.filter(({ cells }) => cells[place]?.isMatch === true).length} of ${lines.length}`;
  const rows = entrants.map(({ name }, place) => [
    name,
    count(all, place),
    count(all.filter(isAsked), place),
    count(
      all.filter((line) => !isAsked(line)),
      place,
    ),
  ]);
  return toTable(['server', 'all rows', 'required by an RFC', 'policy'], rows);
}

function toLines(lines: readonly Line[], entrants: readonly Entrant[]): string {
  const rows = lines.map(({ title, column, ground, cells }) => [
    title,
    column,
    ...cells.map(({ text, isMatch }) => (isMatch ? text : `✗ ${text}`)),
    ground,
  ]);
  return toTable(['the client sends', 'sidegate promises', ...entrants.map(({ name }) => name), 'required by'], rows);
}
