/** Rejects regular expressions whose matching time is not linear in the text: untrusted text could block the event loop (ReDoS). */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseSync, Visitor } from 'oxc-parser';

// Before recheck is loaded: its native binary would be a second, unneeded engine.
process.env['RECHECK_BACKEND'] = 'pure';
const { checkSync } = await import('recheck');

/** A pattern that is allowed although the checker does not find it linear. */
interface Allowed {
  /** Below src/. */
  readonly file: string;
  /** As written in the source. */
  readonly pattern: string;
  /** Why no untrusted text makes it slow. */
  readonly reason: string;
}

const ALLOWED: readonly Allowed[] = [
  {
    file: 'cli/probe.ts',
    pattern: "/^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\\t ]*([\\x20-\\x7e]*?)[\\t ]*$/",
    reason: 'reads the command line only',
  },
  {
    file: 'provider/queue/sqlite/sqlite-database.ts',
    pattern: '/^(INSERT INTO [^]*?)SELECT ([^]*) FROM rows r\\b(?:\\s+WHERE true)?/',
    reason: 'reads statements of the source only',
  },
  {
    file: 'kubernetes/injector/injector-config.ts',
    pattern: '/^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/',
    reason: 'reads the config only',
  },
  { file: 'config/sources/secrets.ts', pattern: '/[\\r\\n]+$/', reason: 'reads mounted files only' },
  {
    file: 'kubernetes/doctor/read-cluster.ts',
    pattern: '/^[^}\\n]*\\bhash="([0-9a-f]{1,64})"[^}\\n]*\\} 1(?:\\.0+)?$/',
    reason: 'lines of at most 1,024 characters, on the command line only',
  },
  {
    file: 'kubernetes/doctor/read-cluster.ts',
    pattern: '/^[^}\\n]*\\bversion="([0-9a-z.+-]{1,64})"[^}\\n]*\\} 1(?:\\.0+)?$/i',
    reason: 'lines of at most 1,024 characters, on the command line only',
  },
  {
    file: 'http/server/client-certificates.ts',
    pattern: '/(?:^|, )([A-Za-z ]+):("(?:[^"\\\\]|\\\\.)*"|[^,"]*)(?=, |$)/g',
    reason: 'parses certificates that a configured CA signed',
  },
  {
    file: 'diagnostics/probe/check.ts',
    pattern:
      '/\\n\\s+at .+:\\d+:\\d+\\)?|Traceback \\(most recent call last\\)|\\bat [\\w.$]+\\(\\w+\\.java:\\d+\\)|goroutine \\d+ \\[|\\.rb:\\d+:in /',
    reason: 'runs only on the command line, on responses of an endpoint that the user owns',
  },
  { file: 'diagnostics/probe/checks/malformed.ts', pattern: '/=+$/', reason: 'parses text that sidegate generates' },
  {
    file: 'verify/schemes/url.ts',
    pattern: '/^(https?:)\\/\\/((?:[^/?#@]*@)?(?:[^/:?#@]+|\\[[^\\]]+\\]))(:[0-9]+)?(?=[/?#]|$)/i',
    reason: 'linear (anchored, no two adjacent runs share a character); the checker does not read lookahead',
  },
  {
    file: 'core/listen-address.ts',
    pattern: '/^(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\\.[A-Za-z0-9_-]{1,63})*\\.?$/',
    reason: 'reads the config only',
  },
];

/** Larger repetitions are checked as unbounded, which is stricter and takes only milliseconds. */
const MAX_EXACT_REPETITION = 8;
/** Per pattern. */
const CHECK_TIMEOUT_MS = 60_000;

/** A pattern of the source tree. */
interface Pattern {
  readonly file: string;
  readonly line: number;
  /** The literal, with its slashes. */
  readonly raw: string;
  readonly source: string;
  readonly flags: string;
}

/** Lists each pattern below `root` that is neither linear nor allowed, and each unused allowance, one line each. */
export function lintPatterns(root: string, allowed: readonly Allowed[] = ALLOWED): string[] {
  const unused = new Set(allowed);
  const found: string[] = [];
  for (const pattern of findPatterns(root)) {
    const allowance = allowed.find((each) => each.file === pattern.file && each.pattern === pattern.raw);
    if (allowance !== undefined) unused.delete(allowance);
    else {
      const problem = findProblem(pattern);
      if (problem !== undefined) found.push(`${pattern.file}:${pattern.line}: ${pattern.raw} ${problem}`);
    }
  }
  for (const { file, pattern } of unused) found.push(`${file}: ${pattern} is allowed but not there; remove it from ALLOWED`);
  return found;
}

function findPatterns(root: string): Pattern[] {
  const patterns: Pattern[] = [];
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((each) => each.endsWith('.ts'))) {
    const text = readFileSync(join(root, file), 'utf8');
    new Visitor({
      Literal(node) {
        if (!('regex' in node)) return;
        const { pattern, flags } = node.regex;
        const line = text.slice(0, node.start).split('\n').length;
        patterns.push({ file, line, raw: text.slice(node.start, node.end), source: pattern, flags });
      },
    }).visit(parseSync(file, text).program);
  }
  return patterns;
}

function findProblem({ source, flags }: Pattern): string | undefined {
  const result = checkSync(widenRepetitions(source), flags, { checker: 'automaton', timeout: CHECK_TIMEOUT_MS });
  if (result.status === 'safe') return undefined;
  if (result.status === 'unknown') return 'cannot be checked; simplify it, or allow it with a reason';
  return `takes ${result.complexity.summary} time; make it linear (core/text.ts), or allow it with a reason`;
}

/** Replaces large counted repetitions by `*` or `+`. */
function widenRepetitions(source: string): string {
  return source.replace(/\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(,?)(\d*)\}/gs, (found, low?: string, comma?: string, high?: string) => {
    if (low === undefined) return found;
    const most = comma === '' ? Number(low) : high === '' ? Number.POSITIVE_INFINITY : Number(high);
    if (most <= MAX_EXACT_REPETITION) return found;
    return Number(low) === 0 ? '*' : '+';
  });
}

if (import.meta.main) {
  const found = lintPatterns(resolve(import.meta.dirname, '..', 'src'));
  for (const line of found) console.error(`src/${line}`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
