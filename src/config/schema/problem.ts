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

/** `file:line:column: error path: message` and, on the next line, the hint. What the file has cannot add lines or control a terminal. */
export function formatProblem(problem: Problem): string {
  return format(problem, String);
}

/** The same for a terminal: with the severity formatted by `paint`, and the line of `text`, the file's, that it is about. */
export function formatShownProblem(problem: Problem, text: string, paint: (severity: Severity) => string = String): string {
  const [head = '', ...hint] = format(problem, paint).split('\n');
  return [head, ...toExcerpt(problem, text), ...hint].join('\n');
}

const MAX_EXCERPT = 120;
const WORD = /[^\s,{}[\]"']+/g;
const SECRET_NAME = /secret|password|token|authorization|credential/i;
const MIN_KEY_LENGTH = 20;

/** Hides values that may be secrets, although the config takes none: an error may end in a log. */
function mask(text: string): string {
  let end = 0;
  let isSecret = false;
  return text.replace(WORD, (word, at: number) => {
    if (/[,{}\]]/.test(text.slice(end, at))) isSecret = false;
    end = at + word.length;
    const colon = word.indexOf(':');
    if (colon !== -1 && SECRET_NAME.test(word.slice(0, colon))) {
      isSecret = true;
      return colon === word.length - 1 ? word : `${word.slice(0, colon + 1)}…`;
    }
    if (word.endsWith(':')) isSecret = false;
    return isSecret || looksLikeKey(word) ? '…' : word;
  });
}

/** Standard Webhooks secrets, URLs with a password, and keys in base64 or hexadecimal. */
function looksLikeKey(word: string): boolean {
  if (/^wh(?:sec|sk)_/.test(word) || (word.includes('://') && word.includes('@'))) return true;
  return word.length >= MIN_KEY_LENGTH && /\d/.test(word) && /[a-z]/i.test(word) && !/[.:]|^\//.test(word);
}

/** The line, and a mark below the column. */
function toExcerpt({ line, column = 1 }: Problem, text: string): string[] {
  if (line === undefined) return [];
  const whole = text.split(/\r?\n/)[line - 1] ?? '';
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
