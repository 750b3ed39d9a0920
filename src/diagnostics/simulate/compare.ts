/** Compares the result of a request with what a fixture expects. */

import type { HeaderFields } from '../../core/headers.ts';
import type { Expectation, MessageExpectation } from './fixtures-schema.ts';
import type { SimulationResult } from './simulator.ts';

/** A difference; both values as text. */
export interface Mismatch {
  readonly field: string;
  readonly expected: string;
  readonly actual: string;
}

const NOTHING = 'nothing';
const MAX_SHOWN_LENGTH = 300;

/** Returns all differences. */
export function findMismatches(expected: Expectation, { line, response, app }: SimulationResult): Mismatch[] {
  const { decision, toApp, toSender, id, status, ...others } = expected;
  const found: Mismatch[] = [];
  const compare = (field: string, wanted: string | number | undefined, actual: string | number | undefined): void => {
    if (wanted !== undefined && wanted !== actual) found.push({ field, expected: show(wanted), actual: show(actual) });
  };
  compare('decision', decision, line.code);
  for (const [field, wanted] of Object.entries(others)) compare(field, wanted, line[field as keyof typeof others]);
  compare('id', id, line.webhookId);
  compare('status', status, response?.status);
  if (toApp !== undefined) found.push(...compareMessage('toApp', toApp, app, 'a request'));
  if (toSender !== undefined) found.push(...compareMessage('toSender', toSender, response, 'a response'));
  return found;
}

interface ActualMessage {
  readonly path?: string;
  readonly headers: HeaderFields;
  readonly body: Buffer;
}

function compareMessage(at: string, expected: MessageExpectation, message: ActualMessage | undefined, what: string): Mismatch[] {
  if (message === undefined) return [{ field: at, expected: what, actual: NOTHING }];
  const found: Mismatch[] = [];
  const { path, headers, body } = expected;
  if (path !== undefined && path !== message.path)
    found.push({ field: `${at}.path`, expected: show(path), actual: show(message.path) });
  for (const [name, wanted] of Object.entries(headers ?? {})) {
    const lines = message.headers.all(name.toLowerCase());
    if (!isAsExpected(wanted, lines))
      found.push({ field: `${at}.headers.${name}`, expected: showLines(wanted), actual: showLines(lines) });
  }
  const text = message.body.toString();
  if (body !== undefined && body !== text) found.push({ field: `${at}.body`, expected: show(body), actual: show(text) });
  return found;
}

function isAsExpected(wanted: string | readonly string[] | boolean, lines: readonly string[]): boolean {
  if (typeof wanted === 'boolean') return wanted === lines.length > 0;
  const all = typeof wanted === 'string' ? [wanted] : wanted;
  return all.length === lines.length && all.every((line, index) => line === lines[index]);
}

function showLines(lines: string | readonly string[] | boolean): string {
  if (lines === true) return 'any value';
  if (lines === false || lines.length === 0) return NOTHING;
  return typeof lines === 'string' ? show(lines) : lines.map(show).join(' and ');
}

function show(value: string | number | undefined): string {
  if (value === undefined) return NOTHING;
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}… (${text.length} characters)` : text;
}
