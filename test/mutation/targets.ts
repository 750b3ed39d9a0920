/** Which source files are mutated and how their tests are run: the only place of this suite that names folders. */

/** The verification path: files, and folders with all their TypeScript files below them. */
export const TARGETS: readonly string[] = [
  'src/core/bytes.ts',
  'src/core/ip-address.ts',
  'src/core/head.ts',
  'src/core/json-path.ts',
  'src/http/path-forms.ts',
  'src/users',
  'src/core/field-policy.ts',
  'src/gateway/upstream/headers.ts',
  'src/gateway/exchange.ts',
  'src/gateway/request-end.ts',
  'src/gateway/pipeline/router.ts',
  'src/gateway/pipeline/gates',
  'src/gateway/pipeline/claims.ts',
  'src/gateway/pipeline/guarded-request.ts',
  'src/gateway/egress-proxy/egress-proxy.ts',
  'src/verify/handshakes',
  'src/http/server/client-address.ts',
  'src/library',
  'src/verify/schemes',
  'src/verify/presets',
  'src/state/memory.ts',
];

/** One round of tests against a mutant; a mutant that passes a round goes on to the next. */
export interface Round {
  /** Beginnings of the paths of its test files. */
  readonly folders: readonly string[];
  /** How many imports may lie between a test file and the mutated file. */
  readonly maxDistance: number;
  /** At most so many files, the nearest first. */
  readonly maxFiles: number;
  readonly seconds: number;
}

/** Quick tests of a whole gate, which notice most of what the nearest tests do not. */
const WIDE = [
  ...['framing.test', 'headers.test', 'interpretation', 'methods', 'paths', 'replay'].map((name) => `test/attack/${name}`),
  ...['basic', 'gate.test', 'handshakes', 'order', 'unsigned-ids'].map((name) => `test/e2e/${name}`),
];

/** Nearest tests first: most mutants end there. */
export const ROUNDS: readonly Round[] = [
  { folders: ['test/unit/', 'test/contract/'], maxDistance: 2, maxFiles: 3, seconds: 60 },
  { folders: ['test/unit/', 'test/contract/'], maxDistance: 4, maxFiles: 15, seconds: 120 },
  { folders: WIDE, maxDistance: 99, maxFiles: 999, seconds: 120 },
  { folders: ['test/unit/', 'test/contract/', 'test/attack/'], maxDistance: 99, maxFiles: 999, seconds: 240 },
  { folders: ['test/e2e/'], maxDistance: 99, maxFiles: 999, seconds: 300 },
];

/** Test files that say nothing of one mutant: they measure memory or time, or run for long. */
export const UNUSED_TESTS: readonly string[] = [
  'test/attack/memory.test.ts',
  'test/attack/password-memory.test.ts',
  'test/e2e/image.test.ts',
  'test/unit/users/hash-pool.test.ts',
];
