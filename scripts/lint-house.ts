/** Holds the house to its plan (ARCHITECTURE.md): floors, who may read time and files, file lengths, no import cycles. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** Rooms by floor, lowest first: a room imports from itself and from lower floors only. */
const FLOORS: readonly (readonly string[])[] = [
  ['core'],
  ['schemes', 'credentials', 'store', 'observe', 'tunnel', 'remote', 'sockets', 'trace', 'certificate', 'kube'],
  ['handshakes', 'otlp'],
  ['config', 'explain'],
  ['gates', 'forward', 'injector'],
  ['gatehouse', 'admin', 'probe', 'admission', 'doctor'],
  ['listen'],
  ['app'],
  ['cli'],
];
const LONGEST_FILE = 300;
const IMPORT = /^(?:import|export)\s+(type\s+)?(?:[^'"]*?\sfrom\s+)?['"]([^'"]+)['"]|\bimport\(['"]([^'"]+)['"]\)/gm;

interface Rule {
  readonly pattern: RegExp;
  readonly text: string;
  readonly mayUse: (file: string) => boolean;
}

const inRoom =
  (...rooms: readonly string[]) =>
  (file: string) =>
    rooms.some((room) => file.startsWith(`${room}/`));
const RULES: readonly Rule[] = [
  {
    pattern: /\bDate\.now\(|\bnew Date\(|\bperformance\.now\(|\bsetTimeout\(|\bsetInterval\(|\bprocess\.hrtime/,
    text: 'reads time; only core/clock.ts does',
    mayUse: (file) => file === 'core/clock.ts',
  },
  { pattern: /\bprocess\.env\b/, text: 'reads the environment; only config/ and cli/ do', mayUse: inRoom('config', 'cli') },
  {
    pattern: /['"]node:fs(?:\/promises)?['"]/,
    text: 'reads files; only config/, app/store.ts, app/process-memory.ts and cli/ do',
    mayUse: (file) => inRoom('config', 'cli')(file) || ['app/store.ts', 'app/process-memory.ts'].includes(file),
  },
  {
    pattern: /\btimingSafeEqual\b/,
    text: 'compares secrets by itself; core/bytes.ts does that',
    mayUse: (file) => file === 'core/bytes.ts',
  },
  {
    pattern: /import\s*\{[^}]*\badmit\b[^}]*\}\s*from\s*'[^']*admitted\.ts'/,
    text: 'mints an Admitted; only gatehouse/pipeline.ts does',
    mayUse: (file) => file === 'gatehouse/pipeline.ts' || file === 'core/admitted.ts',
  },
  {
    pattern: /(?<!\bprocess)(?:\.|\?\.)(?:on|once|addListener|prependListener|prependOnceListener)\(/,
    text: 'adds a listener whose exception ends the process; onEvent and onceEvent of core/safe-events.ts guard it',
    mayUse: (file) => file === 'core/safe-events.ts' || file === 'listen/http2-answer.ts',
  },
  {
    pattern: /(?:\.|\?\.)(?:off|removeListener)\(/,
    text: 'removes a listener that Node does not know; offEvent of core/safe-events.ts takes what onEvent returned',
    mayUse: (file) => file === 'core/safe-events.ts' || file === 'listen/http2-answer.ts',
  },
  {
    pattern: /\bprocess\.(?:on|once)\(/,
    text: 'handles signals or exceptions of the process; only cli/ does',
    mayUse: inRoom('cli'),
  },
  {
    pattern: /\b(?:setImmediate|queueMicrotask|nextTick)\(|\.setTimeout\(|\.on[a-z]+ = |\.addEventListener\(/,
    text: 'runs a callback whose exception ends the process; the clock, or runSoon, runNextTurn and onEvent of core/safe-events.ts guard it',
    mayUse: (file) => file === 'core/safe-events.ts',
  },
  {
    pattern:
      /\b(?:shouldUpgradeCallback|SNICallback|ALPNCallback|pskCallback|checkServerIdentity|createConnection|lookup): (?:async )?(?:\(|function)|\bnew (?:Duplex|Readable|Writable|Transform)\(\{\s*\w+: \(|\bonread: \{\s*\w+: \(/,
    text: 'gives Node a callback whose exception ends the process; guardCallback and guardDecision of core/safe-events.ts guard it',
    // `lookup` is a metric there.
    mayUse: (file) => file === 'observe/injector-metrics.ts',
  },
  {
    pattern:
      /(?:\b(?:createServer|createSecureServer|createTlsServer|openRequest|openHttps?|request|watchDirectory|watch)|\.(?:write|end|listen|close|destroy))\((?:(?:[^()]|\([^()]*\))*?, )?(?:async )?\([^()]*\) => /,
    text: 'gives Node a callback whose exception ends the process; listen for the event, or guard it by core/safe-events.ts',
    mayUse: () => false,
  },
  {
    pattern: /^(?!\s*(?:\*|\/[/*])).*\bvoid [\w#(![]/m,
    text: 'drops a promise, whose rejection ends the process; runDetached of core/safe-events.ts reports it',
    mayUse: () => false,
  },
  { pattern: /^(?:export )?let /m, text: 'has mutable state at module level', mayUse: inRoom('app', 'cli') },
];

/** Everything in the source tree `root` that breaks the plan, one line each. */
export function lintHouse(root: string): string[] {
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  const imports = new Map<string, string[]>();
  const found: string[] = [];
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    const lines = text.split('\n').length - 1;
    if (lines > LONGEST_FILE) found.push(`${file}: ${lines} lines; ${LONGEST_FILE} is the most`);
    for (const rule of RULES) if (rule.pattern.test(text) && !rule.mayUse(file)) found.push(`${file}: ${rule.text}`);
    const targets = findImports(root, file, text);
    imports.set(file, targets);
    for (const target of targets)
      if (!isAllowed(file, target)) found.push(`${file}: imports ${target}, which is not on a lower floor`);
  }
  return [...found, ...findCycles(imports)];
}

function findImports(root: string, file: string, text: string): string[] {
  const targets: string[] = [];
  for (const match of text.matchAll(IMPORT)) {
    const target = match[2] ?? match[3] ?? '';
    if (target.startsWith('.')) targets.push(relative(root, resolve(root, dirname(file), target)));
  }
  return targets;
}

function isAllowed(file: string, target: string): boolean {
  const [from, to] = [toRoom(file), toRoom(target)];
  return from === to || toFloor(to) < toFloor(from);
}

function toRoom(file: string): string {
  return file.split('/')[0] ?? '';
}

function toFloor(room: string): number {
  const floor = FLOORS.findIndex((rooms) => rooms.includes(room));
  return floor === -1 ? FLOORS.length : floor;
}

function findCycles(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) {
      found.push(`import cycle: ${[...path.slice(path.indexOf(file)), file].join(' → ')}`);
      return;
    }
    if (done.has(file)) return;
    for (const target of imports.get(file) ?? []) visit(target, [...path, file]);
    done.add(file);
  };
  for (const file of imports.keys()) visit(file, []);
  return found;
}

if (import.meta.main) {
  const found = lintHouse(resolve(import.meta.dirname, '..', 'src'));
  for (const line of found) console.error(`src/${line}`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
