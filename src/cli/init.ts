/** `sidegate init`: writes a config for the senders and the app of a user, its secrets, and what starts sidegate; then checks it. */
import { randomBytes } from 'node:crypto';
import { existsSync, lstatSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Document, isMap, isSeq, stringify } from 'yaml';
import { SidegateError, usageError } from '../core/errors.ts';
import { onceEvent } from '../core/safe-events.ts';
import type { SchemeDescription } from '../verify/schemes/description.ts';
import { checkFile } from './check.ts';
import { readNamedSync, toScheme } from './input.ts';
import type { Io } from './io.ts';
import { isOfSender, PLACEHOLDERS, type SenderSecret, toSenderRoute } from './sender-page.ts';

/** Options of the command; what is missing is asked on a terminal. */
interface InitOptions {
  readonly sender?: readonly string[];
  readonly app?: string;
  readonly redis?: string;
  readonly deploy?: string;
}

export const DEPLOYMENTS = ['none', 'compose', 'systemd', 'kubernetes'] as const;
type Deployment = (typeof DEPLOYMENTS)[number];

interface Answers {
  readonly senders: readonly SchemeDescription[];
  readonly app: string;
  readonly redis: string | undefined;
  readonly deploy: Deployment;
}

/** A file to write, below the folder of the command. */
interface NewFile {
  readonly path: string;
  readonly text: string;
}

/** A file that only its owner may read. */
interface SecretFile {
  readonly path: string;
  /** Undefined if the user has to write it. */
  readonly text: string | undefined;
  /** The content, as the sender calls it; undefined if it is complete. */
  readonly holds?: string;
}

/** How an app is recognized; only its port is used. */
const APPS: readonly {
  readonly files: readonly string[];
  readonly pattern: RegExp;
  readonly title: string;
  readonly port: number;
}[] = [
  { files: ['package.json'], pattern: /"express"\s*:/, title: 'Express', port: 3000 },
  { files: ['manage.py'], pattern: /django/i, title: 'Django', port: 8000 },
  { files: ['requirements.txt', 'pyproject.toml'], pattern: /\bfastapi\b/i, title: 'FastAPI', port: 8000 },
  { files: ['Gemfile'], pattern: /\brails\b/, title: 'Rails', port: 3000 },
  { files: ['pom.xml', 'build.gradle', 'build.gradle.kts'], pattern: /spring-boot/, title: 'Spring', port: 8080 },
];
const DEFAULT_PORT = 3000;
const SECRET_BYTES = 32;
/** Where the config and the folder of the secrets are. */
const LAYOUTS: Readonly<Record<Deployment, { readonly config: string; readonly secrets: string }>> = {
  none: { config: 'gate.yaml', secrets: 'secrets' },
  // One folder: a file that is mounted alone stays as it was, because editors replace the file on the host.
  compose: { config: 'sidegate/gate.yaml', secrets: 'sidegate/secrets' },
  systemd: { config: 'gate.yaml', secrets: 'secrets' },
  // In a pod, the config and each Secret are mounted in folders side by side.
  kubernetes: { config: 'config/gate.yaml', secrets: 'secrets' },
};
const OWNER_ONLY = 0o600;

/** Exits like `check`. Writes nothing if one of the files exists. */
export async function initFolder(folder: string, options: InitOptions, io: Io): Promise<number> {
  const answers = await toAnswers(folder, options, io);
  const isInPod = answers.deploy === 'kubernetes';
  const path = LAYOUTS[answers.deploy].config;
  const secrets: SecretFile[] = [];
  const text = toConfig(answers, secrets);
  const files = [{ path, text }, ...toDeploymentFiles(answers, secrets)];
  // Also a link to nothing.
  for (const each of [...files, ...secrets])
    if (lstatSync(join(folder, each.path), { throwIfNoEntry: false }) !== undefined)
      throw usageError(`${join(folder, each.path)} exists: remove it, or name another folder`);
  for (const file of files) write(folder, file, io);
  writeSecrets(folder, answers.deploy, secrets, io);
  for (const { path: secret, holds } of secrets)
    if (holds !== undefined) io.stdout(`next: ${join(folder, secret)} must hold ${holds}\n`);
  const placeholders = [...PLACEHOLDERS].filter((each) => text.includes(each));
  if (placeholders.length > 0) io.stdout(`next: replace ${placeholders.join(' and ')} in ${join(folder, path)}\n`);
  const code = await checkFile(join(folder, path), { format: 'text', ...(isInPod && IN_A_POD) }, io);
  if (code === 0 && answers.deploy === 'none')
    io.stdout(`next: start the app, then sidegate run --config ${join(folder, path)}\n`);
  return code;
}

function writeSecrets(folder: string, deploy: Deployment, secrets: readonly SecretFile[], io: Io): void {
  for (const { text, ...file } of secrets) if (text !== undefined) write(folder, { ...file, text }, io, OWNER_ONLY);
  // The folder is often that of an app: its secrets must not get into the repository.
  const path = `${LAYOUTS[deploy].secrets}/.gitignore`;
  if (secrets.length > 0 && !existsSync(join(folder, path))) write(folder, { path, text: '*\n' }, io);
}

function write(folder: string, { path, text }: NewFile, io: Io, mode?: number): void {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text, { flag: 'wx', ...(mode !== undefined && { mode }) });
  io.stdout(`wrote ${file}\n`);
}

/** The injector sets these. */
const IN_A_POD = { listen: ':8480', admin: ':8481', upstream: 'http://127.0.0.1:3000' };

async function toAnswers(folder: string, { sender, app, redis, deploy }: InitOptions, io: Io): Promise<Answers> {
  const found = findApp(folder);
  const url = `http://127.0.0.1:${found?.port ?? DEFAULT_PORT}`;
  const terminal = io.stdin.isTTY === true ? openTerminal(io) : undefined;
  // A terminal asks again after a wrong answer; without one, the default is used.
  const ask = async <T>(question: string, fallback: string, parse: (answer: string) => T): Promise<T> => {
    for (;;) {
      const answer = (await terminal?.ask(`${question} [${fallback === '' ? 'none' : fallback}]: `)) || fallback;
      try {
        return parse(answer);
      } catch (thrown) {
        if (terminal === undefined || !(thrown instanceof SidegateError)) throw thrown;
        io.stderr(`${thrown.message}\n`);
      }
    }
  };
  try {
    const because = found === undefined ? '' : `, which looks like ${found.title}`;
    return {
      senders: sender ? toSenders(sender.join(',')) : await ask('Senders, separated by commas', 'standard-webhooks', toSenders),
      app: app === undefined ? await ask(`URL of the app${because}`, url, toUrl) : toUrl(app),
      redis: redis === undefined ? await ask('URL of Redis, which several replicas need', '', toRedis) : toRedis(redis),
      deploy:
        deploy === undefined
          ? await ask(`How it will run (${DEPLOYMENTS.join(', ')})`, 'none', toDeployment)
          : toDeployment(deploy),
    };
  } finally {
    terminal?.close();
  }
}

function openTerminal({ stdin, stderr }: Io): { ask: (question: string) => Promise<string>; close: () => void } {
  const lines = createInterface({ input: stdin, terminal: false });
  const closed = new AbortController();
  onceEvent(lines, 'close', () => closed.abort());
  return {
    ask: async (question) => {
      stderr(question);
      try {
        return (await lines.question('', { signal: closed.signal })).trim();
      } catch {
        throw usageError('canceled');
      }
    },
    close: () => lines.close(),
  };
}

function findApp(folder: string): { readonly title: string; readonly port: number } | undefined {
  const contains = (file: string, pattern: RegExp): boolean =>
    existsSync(join(folder, file)) && pattern.test(readNamedSync(join(folder, file)).toString('utf8'));
  return APPS.find(({ files, pattern }) => files.some((file) => contains(file, pattern)));
}

function toSenders(names: string): SchemeDescription[] {
  return [...new Set(names.split(',').map((name) => name.trim()))].map(toSender);
}

function toSender(name: string): SchemeDescription {
  const { description } = toScheme(name, name);
  if (isOfSender(description)) return description;
  throw usageError(
    `${name} is not a sender: sidegate scheme prints the names of all, and docs/how-to/custom-sender.md describes others`,
  );
}

function toUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.href === `${url.origin}/`) return url.origin;
  // It may contain a password.
  throw usageError('--app is not a URL of a scheme, a host and a port, such as http://127.0.0.1:3000');
}

function toRedis(text: string): string | undefined {
  if (text === '') return undefined;
  if (/^rediss?:\/\/./.test(text) && URL.canParse(text)) return text;
  throw usageError('--redis is not a URL such as redis://127.0.0.1:6379');
}

function toDeployment(text: string): Deployment {
  const found = DEPLOYMENTS.find((each) => each === text);
  if (found === undefined) throw usageError(`--deploy is one of ${DEPLOYMENTS.join(', ')}, not ${text}`);
  return found;
}

/** The config; adds what it reads to `secrets`. */
function toConfig({ senders, app, redis, deploy }: Answers, secrets: SecretFile[]): string {
  const layout = LAYOUTS[deploy];
  const isInPod = deploy === 'kubernetes';
  // In a namespace, another app may have a Secret of that name.
  const prefix = isInPod ? 'sidegate-' : '';
  const toFile = (secret: SecretFile): string => {
    secrets.push(secret);
    return relative(dirname(layout.config), secret.path);
  };
  const toSource = (preset: SchemeDescription, what: SenderSecret): object => {
    const { title = preset.name, key = 'the secret' } = preset.from ?? {};
    const text = what === 'public-key' ? undefined : `${toNewSecret(preset, what)}\n`;
    const holds = what === 'verify-token' ? `the token that ${title} sends, as you enter it there` : `${key} (${title})`;
    return { file: toFile({ path: `${layout.secrets}/${prefix}${preset.name}/${what}`, text, holds }) };
  };
  const routes = senders.map((preset) => toSenderRoute(preset, (what) => toSource(preset, what), isInPod ? undefined : app));
  const urlFile = redis && toFile({ path: `${layout.secrets}/${prefix}redis/url`, text: `${redis}\n` });
  const document = new Document({
    ...(isInPod ? {} : toPorts(app, deploy)),
    ...(urlFile && { store: { redis: { urlFile } } }),
    routes,
  });
  return withComments(document, senders);
}

/** Senders that let their users choose the secret get this one; the others show theirs, which replaces it. */
function toNewSecret({ secret }: SchemeDescription, what: SenderSecret): string {
  const bytes = randomBytes(SECRET_BYTES);
  if (what === 'verify-token') return bytes.toString('hex');
  return `${secret.usualStart ?? secret.prefix ?? ''}${bytes.toString(secret.encoding === 'base64' ? 'base64' : 'hex')}`;
}

function toPorts(app: string, deploy: Deployment): object {
  // In a container, clients reach only addresses beyond its loopback.
  const host = deploy === 'compose' ? '' : '127.0.0.1';
  return {
    listen: { address: `${host}:${toPort(app)}` },
    admin: { address: `127.0.0.1:${new URL(app).port === '9090' ? 9091 : 9090}` },
  };
}

/** A port beside that of the app. */
function toPort(app: string): number {
  return new URL(app).port === '8080' ? 8081 : 8080;
}

const COMMENTS: Readonly<Record<string, string>> = {
  listen: ' Senders connect here. For HTTPS set listen.tls, or let a proxy in front end TLS (listen.trustedProxies).',
  admin: ' Console, metrics and health. Never reachable from outside.',
  store: ' The IDs of handled events, which all replicas share. Without it, each process keeps its own in memory.',
  routes: ' Requests that match a route, and pass its checks, are forwarded to the app; all others get 404.',
};

function withComments(document: Document, senders: readonly SchemeDescription[]): string {
  const { contents } = document;
  if (isMap<{ value: string; commentBefore?: string }>(contents))
    for (const { key } of contents.items) key.commentBefore = COMMENTS[key.value] ?? '';
  const routes = document.get('routes');
  if (isSeq<{ commentBefore?: string }>(routes))
    for (const [i, route] of routes.items.entries()) {
      const { title = '', key = '', docs = '' } = senders[i]?.from ?? {};
      route.commentBefore = ` ${title}: the key is ${key}. ${docs}`;
    }
  return `# All keys: sidegate schema, or docs/config.md. Check it with sidegate check.\n${document.toString({ lineWidth: 0 })}`;
}

function toDeploymentFiles(answers: Answers, secrets: readonly SecretFile[]): NewFile[] {
  switch (answers.deploy) {
    case 'none':
      return [];
    case 'compose':
      return [{ path: 'compose.yaml', text: toCompose(answers) }];
    case 'systemd':
      return [{ path: 'sidegate.service', text: UNIT }];
    case 'kubernetes':
      return [{ path: 'kustomization.yaml', text: toKustomization(secrets) }];
  }
}

function toCompose({ app }: Answers): string {
  const services = {
    app: { build: '.', ports: [`${toPort(app)}:${toPort(app)}`] },
    sidegate: {
      image: 'sidegate',
      network_mode: 'service:app',
      volumes: ['./sidegate:/etc/sidegate:ro'],
      read_only: true,
      mem_limit: '192m',
      stop_grace_period: '40s',
      restart: 'always',
    },
  };
  const { secrets } = LAYOUTS.compose;
  return `# Both containers share one loopback, as in a pod: the port of \`app\` is that of sidegate, and the app must listen on ${app} only.
# sidegate runs as user 65532, which must be able to read the secrets: sudo chown -R 65532 ${secrets}
# Name ${secrets} in .dockerignore, so that the image of the app does not get them.
${stringify({ services }, { lineWidth: 0 })}`;
}

const UNIT = `# Copy gate.yaml and secrets to /etc/sidegate. The user sidegate must be able to read the secrets: sudo chown -R sidegate /etc/sidegate/secrets
[Unit]
Description=sidegate, authenticating reverse proxy
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/local/bin/sidegate run --config /etc/sidegate/gate.yaml
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
User=sidegate
Environment=MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=32768 MALLOC_TRIM_THRESHOLD_=131072
MemoryMax=192M
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
TimeoutStopSec=40s

[Install]
WantedBy=multi-user.target
`;

function toKustomization(secrets: readonly SecretFile[]): string {
  const names = [...new Set(secrets.map(({ path }) => path.split('/')[1] as string))];
  const kustomization = {
    apiVersion: 'kustomize.config.k8s.io/v1beta1',
    kind: 'Kustomization',
    generatorOptions: { disableNameSuffixHash: true },
    configMapGenerator: [{ name: 'sidegate', files: ['config/gate.yaml'] }],
    secretGenerator: names.map((name) => ({
      name,
      files: secrets.flatMap(({ path }) => (path.startsWith(`secrets/${name}/`) ? [path] : [])),
    })),
  };
  return `# 1. Install the chart, which adds the sidecar (docs/tutorials/kubernetes.md), and apply this with kubectl apply -k.
# 2. Add this to the pod template of the app, and wait: kubectl rollout status
#   labels: { sidegate.dev/inject: "true" }
#   annotations: { sidegate.dev/config: sidegate, sidegate.dev/secrets: "${names.join(',')}" }
# 3. Set targetPort: sidegate (8480 before Kubernetes 1.33) in the Service of the app, which bypasses the sidecar until then, and check: sidegate doctor
${stringify(kustomization, { lineWidth: 0 })}`;
}
