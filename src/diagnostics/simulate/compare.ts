/** Holds what came of a request against what a fixture expects. */

import type { HeaderFields } from '../../core/headers.ts';
import type { Expectation, SightExpectation } from './fixtures-schema.ts';
import type { SimulationResult } from './simulator.ts';

/** One thing that is not so; both sides as text to be shown. */
export interface Mismatch {
  readonly field: string;
  readonly expected: string;
  readonly got: string;
}

const NOTHING = 'nothing';
const LONGEST_SHOWN = 300;

/** All that is not as expected. */
export function findMismatches(expected: Expectation, { line, answer, app }: SimulationResult): Mismatch[] {
  const { verdict, toApp, toSender, id, status, ...others } = expected;
  const found: Mismatch[] = [];
  const compare = (field: string, wanted: string | number | undefined, got: string | number | undefined): void => {
    if (wanted !== undefined && wanted !== got) found.push({ field, expected: show(wanted), got: show(got) });
  };
  compare('verdict', verdict, line.code);
  for (const [field, wanted] of Object.entries(others)) compare(field, wanted, line[field as keyof typeof others]);
  compare('id', id, line.webhookId);
  compare('status', status, answer?.status);
  if (toApp !== undefined) found.push(...compareSight('toApp', toApp, app, 'a request'));
  if (toSender !== undefined) found.push(...compareSight('toSender', toSender, answer, 'an answer'));
  return found;
}

interface Sight {
  readonly path?: string;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

function compareSight(at: string, expected: SightExpectation, sight: Sight | undefined, what: string): Mismatch[] {
  if (sight === undefined) return [{ field: at, expected: what, got: NOTHING }];
  const found: Mismatch[] = [];
  const { path, headers, body } = expected;
  if (path !== undefined && path !== sight.path) found.push({ field: `${at}.path`, expected: show(path), got: show(sight.path) });
  for (const [name, wanted] of Object.entries(headers ?? {})) {
    const lines = sight.headers.all(name.toLowerCase());
    if (!isAsWanted(wanted, lines))
      found.push({ field: `${at}.headers.${name}`, expected: showLines(wanted), got: showLines(lines) });
  }
  const text = sight.body.toString();
  if (body !== undefined && body !== text) found.push({ field: `${at}.body`, expected: show(body), got: show(text) });
  return found;
}

function isAsWanted(wanted: string | readonly string[] | boolean, lines: readonly string[]): boolean {
  if (typeof wanted === 'boolean') return wanted === lines.length > 0;
  const all = typeof wanted === 'string' ? [wanted] : wanted;
  return all.length === lines.length && all.every((line, index) => line === lines[index]);
}

function showLines(lines: string | readonly string[] | boolean): string {
  if (lines === true) return 'some text';
  if (lines === false || lines.length === 0) return NOTHING;
  return typeof lines === 'string' ? show(lines) : lines.map(show).join(' and ');
}

function show(value: string | number | undefined): string {
  if (value === undefined) return NOTHING;
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}… (${text.length} characters)` : text;
}
