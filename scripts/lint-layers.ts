/** Checks the source tree against its layout (ARCHITECTURE.md): layers, access to time, files and environment, file lengths, import cycles. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

type Layers = readonly (readonly string[])[];

/**
 * Areas by layer, lowest first: an area imports from itself and from lower layers only. A subfolder that is listed here is an area
 * with a separate layer: the gate uses the analysis of rejections.
 */
const LAYERS: Layers = [
  ['core'],
  ['http', 'verify', 'users'],
  ['state'],
  ['config', 'telemetry'],
  ['gateway', 'http-api'],
  ['provider', 'diagnostics/explain', 'library'],
  ['admin'],
  ['app', 'kubernetes'],
  ['diagnostics'],
  ['cli'],
];
/** The same inside an area, for its subfolders. */
const INNER_LAYERS: ReadonlyMap<string, Layers> = new Map([
  ['verify', [['schemes'], ['presets'], ['handshakes', 'keys', 'sign']]],
  ['config', [['schema'], ['sources', 'rules'], ['load']]],
  ['telemetry', [['metrics'], ['log', 'tracing'], ['journal']]],
  ['http', [['empty-records.ts'], ['dial', 'server'], ['client']]],
  ['gateway', [['server-metrics.ts', 'upstream'], ['pipeline'], ['egress-proxy', 'forward-auth'], ['request-end.ts']]],
  [
    'provider',
    [
      ['events'],
      ['endpoints'],
      ['queue'],
      ['attempt'],
      ['telemetry'],
      ['lanes'],
      ['api', 'inbox', 'outbox', 'settings'],
      ['runtime'],
    ],
  ],
  [
    'kubernetes',
    [
      ['client', 'injector'],
      ['certificates', 'doctor'],
      ['admission', 'manifests'],
    ],
  ],
  ['diagnostics', [['junit.ts'], ['captured', 'probe', 'simulate']]],
]);
const LONGEST_FILE = 500;
const IMPORT = /^(?:import|export)\s+(type\s+)?(?:[^'"]*?\sfrom\s+)?['"]([^'"]+)['"]|\bimport\(['"]([^'"]+)['"]\)/gm;

interface Rule {
  readonly pattern: RegExp;
  readonly text: string;
  readonly mayUse: (file: string) => boolean;
}

const isIn =
  (...folders: readonly string[]) =>
  (file: string) =>
    folders.some((folder) => file.startsWith(`${folder}/`));
/** Besides `config` and `cli`: the console's page, /proc, the names of the machine, and standard output. */
const FILE_READERS: ReadonlySet<string> = new Set([
  'admin/console/page.ts',
  'http/dial/resolve.ts',
  'http/server/memory.ts',
  'provider/queue/sqlite/queue-file.ts',
  'provider/runtime/housekeeping.ts',
  'telemetry/log/log-batches.ts',
]);
/** Read whole files, whose size nobody else decides: of the system, and of the package itself. */
const WHOLE_FILE_READERS: ReadonlySet<string> = new Set([
  'admin/console/page.ts',
  'cli/run.ts',
  'cli/version.ts',
  'http/dial/resolve.ts',
  'http/server/memory.ts',
  'provider/queue/sqlite/queue-file.ts',
]);
/**
 * Open connections to a configured host without `lookUpForConnect`, or to an address that was checked. No request from outside makes ioredis,
 * pg or the client of the API server connect, and neither has the option.
 */
const CONNECTORS: ReadonlySet<string> = new Set([
  'diagnostics/probe/client.ts',
  'diagnostics/simulate/simulator.ts',
  'http/dial/dial.ts',
  'kubernetes/client/transport.ts',
]);
/** Duplicates, outdated events, and handshakes. */
const ACKNOWLEDGING: ReadonlySet<string> = new Set([
  'core/refusal.ts',
  'verify/handshakes/handshake.ts',
  'gateway/pipeline/gates/dedup.ts',
  'gateway/pipeline/gates/order.ts',
  'gateway/pipeline/gates/sns.ts',
]);
/** Compare names and values of headers, schemes of URLs and hex digits, which are ASCII. */
const ASCII_READERS: ReadonlySet<string> = new Set([
  'verify/handshakes/cloudevents.ts',
  'verify/handshakes/echo.ts',
  'verify/keys/https-get.ts',
  'verify/schemes/aliases.ts',
  'verify/schemes/field-head.ts',
  'verify/schemes/head.ts',
  'verify/schemes/header-list.ts',
  'verify/schemes/jwt/jwt.ts',
  'verify/schemes/identity.ts',
  'verify/schemes/sign-anywhere.ts',
  'verify/schemes/head.ts',
  'verify/schemes/token.ts',
  'verify/schemes/url.ts',
]);
/** Parse JSON that is configured or about to be signed, or single values. */
const JSON_READERS: ReadonlySet<string> = new Set([
  'gateway/pipeline/gates/order.ts',
  'verify/schemes/public-keys.ts',
  'verify/schemes/sign-anywhere.ts',
  'verify/schemes/token.ts',
]);
const RULES: readonly Rule[] = [
  {
    pattern: /\bJSON\.parse\b/,
    text: 'parses JSON of others, of any size and with names that Node may misread; use core/strict-json.ts or parseJsonText, or add the file to JSON_READERS',
    mayUse: (file) =>
      !isIn('verify', 'users', 'gateway', 'library', 'http-api', 'provider/api', 'kubernetes/admission')(file) ||
      JSON_READERS.has(file),
  },
  {
    pattern: /\.to(?:Locale)?(?:Lower|Upper)Case\b/,
    text: 'converts case by itself, so `ſ` may differ from s; core/text.ts does that, or add the file to ASCII_READERS',
    mayUse: (file) => !isIn('verify', 'users')(file) || ASCII_READERS.has(file),
  },
  {
    pattern: /\bDate\.now\(|\bnew Date\(|\bperformance\.now\(|\bsetTimeout\(|\bsetInterval\(|\bprocess\.hrtime/,
    text: 'reads time; only core/clock.ts does',
    mayUse: (file) => file === 'core/clock.ts',
  },
  {
    pattern: /\bprocess\.env\b/,
    text: 'reads the environment; only config/, cli/ and kubernetes/client/ do',
    mayUse: isIn('config', 'cli', 'kubernetes/client'),
  },
  {
    pattern: /['"]node:fs(?:\/promises)?['"]/,
    text: 'reads files; only config/, cli/, kubernetes/client/ and FILE_READERS do',
    mayUse: (file) => isIn('config', 'cli', 'kubernetes/client')(file) || FILE_READERS.has(file),
  },
  {
    pattern:
      /\{[^}]*\b(?:readFile(?:Sync)?|createReadStream)\b[^}]*\} from 'node:fs|\.readFile\(|\bof (?:\w+\.)*stdin\)(?! return\b)|'node:stream\/consumers'/,
    text: 'reads a file or standard input of any size; config/sources/bounded-read.ts has a maximum',
    mayUse: (file) => file === 'config/sources/bounded-read.ts' || WHOLE_FILE_READERS.has(file),
  },
  {
    pattern: /\btimingSafeEqual\b/,
    text: 'compares secrets by itself; core/bytes.ts does that',
    // The library has it in place of that of Node.
    mayUse: (file) => file === 'core/bytes.ts' || file === 'library/web/node.ts',
  },
  {
    pattern: /\bnew BlockList\(|::ffff:/i,
    text: 'parses or compares IP addresses by itself; core/ip-address.ts does that',
    mayUse: (file) => file === 'core/ip-address.ts',
  },
  {
    pattern: /import\s*\{[^}]*\badmit\b[^}]*\}\s*from\s*'[^']*admitted\.ts'/,
    text: 'creates an Admitted; only gateway/pipeline/guarded-request.ts does',
    mayUse: (file) => file === 'gateway/pipeline/guarded-request.ts',
  },
  {
    pattern: /import\s*\{[^}]*\backnowledge\b[^}]*\}\s*from\s*'[^']*refusal\.ts'|\bnew Refusal\(/,
    text: 'answers an event that does not reach the app with a 2xx; only ACKNOWLEDGING files do, with a proof',
    mayUse: (file) => ACKNOWLEDGING.has(file),
  },
  {
    pattern: /(?<!\bprocess)(?:\.|\?\.)(?:on|once|addListener|prependListener|prependOnceListener)\(/,
    text: 'adds a listener whose exception ends the process; onEvent and onceEvent of core/safe-events.ts guard it',
    mayUse: (file) => file === 'core/safe-events.ts' || file === 'http/server/http2-response.ts',
  },
  {
    pattern: /(?:\.|\?\.)(?:off|removeListener)\(/,
    text: 'removes a listener that Node does not know; offEvent of core/safe-events.ts takes what onEvent returned',
    mayUse: (file) => file === 'core/safe-events.ts' || file === 'http/server/http2-response.ts',
  },
  {
    pattern: /\bprocess\.(?:on|once)\(/,
    text: 'handles signals or exceptions of the process; only cli/ does',
    mayUse: isIn('cli'),
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
    mayUse: (file) => file === 'kubernetes/admission/injector-metrics.ts',
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
  {
    pattern: /import (?:(?:\* as )?\w+|\{[^}]*(?<!type )\b(?:create(?:Secure)?Server|Server)\b[^}]*\}) from 'node:http[s2]?'/,
    text: 'opens a port without limits; http/server/strict-server.ts creates servers',
    // The app of the self-test runs in a separate pod, for seconds.
    mayUse: (file) => file === 'http/server/strict-server.ts' || file === 'cli/self-test.ts',
  },
  {
    pattern: /^(?![^]*\bnew PortRequests\()[^]*\bcreateStrictServer\b/,
    text: 'opens a port whose requests may wait without a limit; PortRequests receives them',
    mayUse: (file) => file === 'http/server/strict-server.ts',
  },
  {
    pattern: /\bonEvent\([^;]*'(?:request|checkContinue|checkExpectation)'/,
    text: 'receives requests before they are counted; PortRequests does that',
    mayUse: (file) => file === 'http/server/port-requests.ts' || file === 'cli/self-test.ts',
  },
  {
    pattern: /'stream', (?:async )?\(/,
    text: 'receives HTTP/2 streams before they are counted; http/server/http2.ts does that',
    mayUse: (file) => file === 'http/server/http2.ts',
  },
  {
    pattern: /(?:\.|\?\.)(?:pause|pipe)\(/,
    text: 'pauses a stream, perhaps forever; ReadPause of core/reading.ts has a deadline',
    // A terminal.
    mayUse: (file) => file === 'core/reading.ts' || file === 'cli/input.ts',
  },
  {
    pattern: /'drain',/,
    text: 'waits for a writer, perhaps forever; pauseUntilDrained of core/reading.ts has a deadline',
    // Only the end of the process waits for the log, for at most 2 s (cli/shutdown.ts).
    mayUse: (file) => file === 'core/reading.ts' || file === 'telemetry/log/log-batches.ts',
  },
  {
    pattern: /\b(?:\w*(?:deadline|timeout|until|atMost)|never)(?:: \w+)? = (?:Number\.POSITIVE_)?Infinity\b/i,
    text: 'has a deadline that never comes; say which other one applies meanwhile, and check that one instead',
    mayUse: () => false,
  },
  {
    pattern: /from ['"](?:node:)?dns(?:\/promises)?['"];$/m,
    text: 'looks up names; http/dial/resolve.ts does it',
    mayUse: (file) => file === 'http/dial/resolve.ts',
  },
  {
    pattern: /\bsystemResolve\b/,
    text: 'takes a thread for each name; createResolve of http/dial/resolve.ts does not, or pass names of the command line or the config only',
    mayUse: (file) => isIn('cli')(file) || file === 'app/check.ts' || file === 'http/dial/resolve.ts',
  },
  {
    pattern:
      /^(?![^]*\blookup: lookUpForConnect\b)[^]*import \{[^}]*(?<!type )\b(?:connect|createConnection|request|get|Agent)\b[^}]*\} from 'node:(?:net|tls|https?)'/,
    text: 'connects to names without a limit on lookups; pass `lookup: lookUpForConnect`, or add the file to CONNECTORS',
    mayUse: (file) => CONNECTORS.has(file) || isIn('cli')(file),
  },
  {
    pattern:
      /\.#?\w+ (?:\?\?|\|\|)?=\s+\(*(?:async )?(?:\((?:[^()]|\([^()]*\))*\)(?:: [^=]+?)?|\w+) => |\.#?\w+ (?:\?\?|\|\|)?=\s+(?:async )?function\b/,
    text: 'assigns a function to a property: V8 puts it among old objects, so what it refers to stays until a major collection; name it first',
    mayUse: () => false,
  },
  { pattern: /^(?:export )?let /m, text: 'has mutable state at module level', mayUse: isIn('app', 'cli') },
];

/** Lists every violation in the source tree `root`, one line each. */
export function lintLayers(root: string): string[] {
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));
  const imports = new Map<string, string[]>();
  const found: string[] = [];
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    const lines = text.split('\n').length - 1;
    if (lines > LONGEST_FILE) found.push(`${file}: ${lines} lines; ${LONGEST_FILE} is the most`);
    for (const rule of toRules(file)) if (rule.pattern.test(text) && !rule.mayUse(file)) found.push(`${file}: ${rule.text}`);
    const targets = findImports(root, file, text);
    imports.set(file, targets);
    for (const target of targets)
      if (!isAllowed(file, target)) found.push(`${file}: imports ${target}, which is not in a lower layer`);
  }
  return [...found, ...findCycles(imports)];
}

/** The console's page runs in a browser, and the rules protect the process. */
function toRules(file: string): readonly Rule[] {
  return file.startsWith('admin/page/') ? [] : RULES;
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
  const [from, to] = [findArea(file), findArea(target)];
  if (from !== to) return findLayer(LAYERS, to) < findLayer(LAYERS, from);
  const layers = INNER_LAYERS.get(from);
  if (layers === undefined) return true;
  const [inner, innerTarget] = [findFolder(file, from), findFolder(target, from)];
  return inner === innerTarget || findLayer(layers, innerTarget) < findLayer(layers, inner);
}

/** The area of a file: the longest listed folder that contains it, otherwise its top folder. */
function findArea(file: string): string {
  const areas = LAYERS.flat().filter((area) => file.startsWith(`${area}/`));
  return areas.sort((a, b) => b.length - a.length)[0] ?? file.split('/')[0] ?? '';
}

function findFolder(file: string, area: string): string {
  return file.slice(area.length + 1).split('/')[0] ?? '';
}

/** Unlisted folders are above all others. */
function findLayer(layers: Layers, folder: string): number {
  const layer = layers.findIndex((folders) => folders.includes(folder));
  return layer === -1 ? layers.length : layer;
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
  const found = lintLayers(resolve(import.meta.dirname, '..', 'src'));
  for (const line of found) console.error(`src/${line}`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
