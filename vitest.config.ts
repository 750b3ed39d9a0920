import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Vitest's default is one worker on two cores, which leaves them half idle: tests mostly wait. */
const WORKERS = Math.max(2, availableParallelism() - 1);
const [SECOND, MINUTE] = [1_000, 60_000];
/** The folders of the suites that `npm test` does not run. */
const OTHER_FOLDERS = ['cluster', 'browser', 'fuzz', 'oracles', 'node26', 'memory', 'chaos', 'models', 'simulation'];
/** End-to-end tests of what a request passes through; commands and pages behave the same on every Node version. */
const DATA_PATH = [
  'basic',
  'client-certificates',
  'drain',
  'gate',
  'http2',
  'limits',
  'passing-through',
  'provider',
  'proxy',
  'sender',
  'sqlite-queue',
  'streaming',
  'tls',
  'upgrade',
];
/** Areas that use Node's sockets, TLS, HTTP, cryptography, threads or streams; the others compute the same on every version. */
const NODE_DEPENDENT = ['app', 'core', 'gateway', 'http', 'library', 'state', 'telemetry', 'users', 'verify'];
/** Builds what the tests start. */
const BUNDLE = 'test/support/bundle.ts';
/** A worker loads the sources once for all of its files, so they share its process: a file cleans up after itself, and mocks no module. */
const SHARED_PROCESSES = { isolate: false, testTimeout: MINUTE, hookTimeout: MINUTE, maxWorkers: WORKERS };
const CLUSTER = {
  globalSetup: [BUNDLE, 'test/support/cluster/global-setup.ts'],
  testTimeout: 2 * MINUTE,
  hookTimeout: 4 * MINUTE,
  fileParallelism: false,
};

/** A machine can disturb a real node and floods: a test that fails runs once more, and is reported as flaky if it passes then. */
const AGAIN = { retry: 1 };
/** How long a test takes depends on the machine, so one that ran out of time runs again, too. One that saw a wrong value fails. */
const AGAIN_IF_LATE = { retry: { count: 1, condition: /^Test timed out/ } };

const TEST = { globalSetup: [BUNDLE], ...SHARED_PROCESSES, ...AGAIN_IF_LATE };
const TEST_FILES = { include: ['test/**/*.test.ts'], exclude: OTHER_FOLDERS.map((folder) => `test/${folder}/**`) };
/** They take minutes, so `npm test` leaves them to suites. */
const ATTACK = ['test/attack/**/*.test.ts'];
const PROVIDER = ['test/contract/delivery-queue*.test.ts', 'test/e2e/{outbox,provider,queue,sqlite-queue}*.test.ts'];

const COMMANDS = [
  'test/e2e/{check-connect,cli,cli-*,dashboards,doctor,examples,explain-cli,fixtures,image,init,inject-server}.test.ts',
  'test/e2e/{package,probe,probe-cli,reproducible-package,self-test,sender,sender-requests}.test.ts',
  'test/{docs-commands,install-scripts,licenses,sbom}.test.ts',
];

/** The suites, by name: `npx vitest run --project NAME FILE`. */
const SUITES = {
  /** All that the next four run. */
  test: { ...TEST, ...TEST_FILES },
  main: { ...TEST, ...TEST_FILES, exclude: [...TEST_FILES.exclude, ...ATTACK, ...COMMANDS, ...PROVIDER] },
  attack: { ...TEST, include: ATTACK },
  commands: { ...TEST, include: COMMANDS },
  provider: { ...TEST, include: PROVIDER },
  node26: {
    include: [
      'test/{attack,contract,node26}/**/*.test.ts',
      `test/unit/{${NODE_DEPENDENT.join(',')}}/**/*.test.ts`,
      `test/e2e/{${DATA_PATH.join(',')}}.test.ts`,
    ],
    // The store is SQLite or PostgreSQL, whatever Node runs the queue; the end-to-end tests use it.
    exclude: ['test/contract/delivery-queue*.test.ts'],
    globalSetup: [BUNDLE],
    ...SHARED_PROCESSES,
    ...AGAIN_IF_LATE,
  },
  cluster: {
    ...CLUSTER,
    ...AGAIN_IF_LATE,
    include: ['test/cluster/**/*.test.ts'],
    exclude: ['test/cluster/node/**', 'test/cluster/floods/**'],
  },
  // They share the real node, and mostly wait for it, so they run beside the others.
  'cluster-node': { ...CLUSTER, ...AGAIN, include: ['test/cluster/node/**/*.test.ts'] },
  // Floods of pods on the real node take all of the CPUs, so nothing else runs meanwhile.
  'cluster-floods': { ...CLUSTER, ...AGAIN, include: ['test/cluster/floods/**/*.test.ts'] },
  browser: {
    ...AGAIN_IF_LATE,
    include: ['test/browser/**/*.test.ts'],
    globalSetup: ['test/support/console-page.ts'],
    testTimeout: MINUTE,
    hookTimeout: MINUTE,
    fileParallelism: false,
  },
  oracles: {
    ...AGAIN_IF_LATE,
    include: ['test/oracles/**/*.test.ts'],
    globalSetup: [BUNDLE],
    testTimeout: MINUTE,
    hookTimeout: MINUTE,
  },
  memory: {
    ...AGAIN,
    include: ['test/memory/**/*.test.ts'],
    globalSetup: [BUNDLE],
    testTimeout: 3 * MINUTE,
    hookTimeout: MINUTE,
    maxWorkers: 2,
  },
  fuzz: { include: ['test/fuzz/**/*.test.ts'], testTimeout: 2 * MINUTE, hookTimeout: 30 * SECOND },
  // They mostly wait, for leases and pauses.
  chaos: {
    include: ['test/chaos/**/*.test.ts'],
    globalSetup: [BUNDLE],
    testTimeout: 60 * MINUTE,
    hookTimeout: MINUTE,
    maxWorkers: 3,
  },
  // The model checker is a process of its own: at most two at once, as on two cores.
  models: {
    include: ['test/models/**/*.test.ts'],
    testTimeout: 3 * MINUTE,
    hookTimeout: 30 * SECOND,
    fileParallelism: false,
    maxConcurrency: 2,
  },
  // The processes that the tests start need both cores.
  simulation: {
    include: ['test/simulation/**/*.test.ts'],
    testTimeout: 10 * MINUTE,
    fileParallelism: false,
    maxConcurrency: 2,
  },
};

/** Files that take a minute or more and look small. Vitest begins with the largest ones, so these would end long after all others. */
const LONG = /\/(?:contract\/delivery-queue(?:-postgres)?|e2e\/provider-isolation)\.test\.ts$/;

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => Number(LONG.test(b.moduleId)) - Number(LONG.test(a.moduleId)));
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongFirst },
    projects: Object.entries(SUITES).map(([name, suite]) => ({
      test: { name, expect: { poll: { timeout: 30 * SECOND } }, ...suite },
    })),
    coverage: { provider: 'v8', include: ['src/**'], reporter: ['text-summary', 'text'] },
  },
});
