/** A problem in the config, with its position and a way to fix it. */
import { toPrintable } from '../../core/terminal.ts';

/** An `error` prevents the start or the reload; a `warning` is printed and logged. */
export type Severity = 'error' | 'warning';

/** One problem in the config. */
export interface Problem {
  readonly severity: Severity;
  readonly file: string;
  /** 1-based; absent if the problem has no position in the file. */
  readonly line?: number;
  readonly column?: number;
  /** Dotted path, for example `routes.0.webhook.tolerance`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
  /** How to fix it. */
  readonly hint?: string;
}

/** `file:line:column: error path: message` and, on the next line, the hint. Texts from the file add no line, and control no terminal. */
export function formatProblem(problem: Problem): string {
  return format(problem, String);
}

/** The same for a terminal: with the severity formatted by `paint`, and that of the file's `lines` that it is about. */
export function formatShownProblem(
  problem: Problem,
  lines: readonly string[],
  paint: (severity: Severity) => string = String,
): string {
  const [head = '', ...hint] = format(problem, paint).split('\n');
  return [head, ...toExcerpt(problem, lines), ...hint].join('\n');
}

const MAX_EXCERPT = 120;
/** A longer line has no excerpt: each of its problems would search it for secrets. */
const MAX_LINE = 10_000;
const WORD = /[^\s,{}[\]"']+/g;
const SECRET_NAME = /secret|password|token|authorization|credential/i;
const MIN_KEY_LENGTH = 20;

/** Hides values that may be secrets, although the config takes none: an error may end in a log. */
function mask(text: string): string {
  const end = findSecret(text);
  const open = end === undefined || text.slice(end).trim() === '' ? text : `${text.slice(0, end)} …`;
  return open.replace(WORD, (word) => (looksLikeKey(word) ? '…' : word));
}

/** The end of the first key of a secret without a reference, which is an object; a secret may contain any character. */
function findSecret(text: string): number | undefined {
  let end = 0;
  for (const part of text.split(':').slice(0, -1)) {
    end += part.length + 1;
    const name =
      part
        .trimEnd()
        .split(/[\s,{[]/)
        .at(-1) ?? '';
    if (SECRET_NAME.test(name) && !text.slice(end).trimStart().startsWith('{')) return end;
  }
  return undefined;
}

/** The value of the line's key is on the next one. */
function isBeforeSecret(line: string): boolean {
  const end = findSecret(line);
  return end !== undefined && /^(?:[|>].*)?$/.test(line.slice(end).trim());
}

/** Standard Webhooks secrets, URLs with a password, and keys in base64 or hexadecimal. */
function looksLikeKey(word: string): boolean {
  if (/^wh(?:sec|sk)_/.test(word) || (word.includes('://') && word.includes('@'))) return true;
  return word.length >= MIN_KEY_LENGTH && /\d/.test(word) && /[a-z]/i.test(word) && !/[.:]|^\//.test(word);
}

/** The line, and a mark below the column. */
function toExcerpt({ line, column = 1 }: Problem, lines: readonly string[]): string[] {
  if (line === undefined) return [];
  const whole = lines[line - 1] ?? '';
  if (whole.length > MAX_LINE || isBeforeSecret(lines[line - 2] ?? '')) return [];
  const before = toPrintable(mask(whole.slice(0, column - 1)));
  const masked = toPrintable(mask(whole));
  const from = masked.length <= MAX_EXCERPT ? 0 : Math.max(0, before.length - MAX_EXCERPT / 2);
  const shown = masked.slice(from, from + MAX_EXCERPT);
  return [`  ${line} | ${shown}`, `  ${' '.repeat(String(line).length)} | ${' '.repeat(before.length - from)}^`];
}

function format(problem: Problem, paint: (severity: Severity) => string): string {
  const file = toPrintable(problem.file);
  const place = problem.line === undefined ? file : `${file}:${problem.line}:${problem.column}`;
  const path = problem.path === '' ? '' : ` ${toPrintable(problem.path)}:`;
  const hint = problem.hint === undefined ? '' : `\n  hint: ${toPrintable(problem.hint)}`;
  return `${place}: ${paint(problem.severity)}${path} ${toPrintable(problem.message)}${hint}`;
}
