/** All commands, with commander. */
import type { Command } from 'commander';
import { toJsonSchema } from '../config/schema/json-schema.ts';
import { toFixturesJsonSchema } from '../diagnostics/simulate/fixtures.ts';
import { addApiCommand, addApiGroup } from './api-command.ts';
import { COLLECT, createBaseProgram, parseCommand } from './base-program.ts';
import { checkFile } from './check.ts';
import { addCompletion } from './completion.ts';
import { DELIVERIES } from './deliveries.ts';
import { examineCluster } from './doctor.ts';
import { ENDPOINTS } from './endpoints.ts';
import { EVENTS } from './events.ts';
import { explainRequest } from './explain.ts';
import { forgetId } from './forget.ts';
import { hashPassword } from './hash-password.ts';
import { initFolder } from './init.ts';
import { injectFiles } from './inject.ts';
import { EXIT, type Io } from './io.ts';
import { LOGINS } from './logins.ts';
import { REPORTS, runReport, withReport, writeReport } from './output.ts';
import { OVERVIEW } from './overview.ts';
import { probeEndpoint } from './probe.ts';
import { REQUESTS } from './requests.ts';
import { printScheme } from './scheme.ts';
import { testGate } from './self-test.ts';
import { sendDelivery } from './send.ts';
import { signDelivery } from './sign.ts';
import { testConfigs } from './test.ts';
import { verifyDelivery } from './verify.ts';

const LOG_FORMAT = 'text or json; default: text on a terminal outside Kubernetes, otherwise json';

/** Runs one command; resolves to the exit code. */
export function runProgram(argv: readonly string[], io: Io): Promise<number> {
  return parseCommand((setExit) => createProgram(io, setExit), argv, io);
}

/** Creates the program with all commands; a command calls `setExit` with its exit code. */
export function createProgram(io: Io, setExit: (code: number) => void): Command {
  const program = createBaseProgram(io);
  program.description('An authenticating reverse proxy next to your app: it forwards only verified webhooks, each exactly once.');
  addRunning(program);
  addCheck(program, io, setExit);
  withReport(withSender(program.command('sign')), REPORTS.sign)
    .description('print the headers of a signed delivery')
    .argument('[file]', 'file with the body; default: standard input')
    .option('--id <id>', 'ID of the delivery; default: random')
    .option('--timestamp <seconds>', 'Unix timestamp of the delivery; default: now')
    .option('--public-url <url>', 'the URL to sign, for schemes that sign it')
    .option('--url <url>', 'URL of the curl command')
    .action(async (file, given) =>
      setExit(await runReport(given, REPORTS.sign, io, (options, out) => signDelivery(file, options, out))),
    );
  withSender(program.command('send'))
    .description('sign a delivery and POST it; exit 0 if the response is 2xx')
    .argument('<url>', 'where to send it')
    .argument('[file]', 'file with the body; default: standard input')
    .option('--id <id>', 'ID of the delivery; default: random')
    .option('--timestamp <seconds>', 'Unix timestamp of the delivery; default: now')
    .option(
      '--public-url <url>',
      'the URL to sign, for schemes that sign it; default: publicUrl of the route, or the URL it is sent to',
    )
    .option('--timeout <duration>', 'how long to wait for the response', '30s')
    .action(async (url, file, options) => setExit(await sendDelivery(url, file, options, io)));
  withSender(program.command('verify'))
    .description('verify a signed delivery and explain the result; exit 0 if it is valid')
    .argument('[file]', 'file with the body, byte for byte; default: standard input')
    .requiredOption('-H, --header <field>', "a header as 'Name: value'; repeatable", COLLECT)
    .option('--method <method>', 'method of the request, for schemes that sign it', 'POST')
    .option('--public-url <url>', 'the URL to sign, for schemes that sign it')
    .option('--tolerance <duration>', 'tolerance of the timestamp; default: that of the scheme')
    .option('--at <seconds>', 'check the timestamp at this Unix time; default: now')
    .action(async (file, options) => setExit(await verifyDelivery(file, options, io)));
  addExplain(program, io, setExit);
  addProbe(program, io, setExit);
  addHashPassword(program, io, setExit);
  addTest(program, io, setExit);
  addSchema(program, io);
  addScheme(program, io, setExit);
  addInit(program, io, setExit);
  addForget(program, io, setExit);
  addApiGroup(program.command('requests'), REQUESTS, io, setExit);
  addApiCommand(program.command('overview'), OVERVIEW, io, setExit);
  addApiGroup(program.command('logins'), LOGINS, io, setExit);
  addApiGroup(program.command('endpoints'), ENDPOINTS, io, setExit);
  addApiGroup(program.command('deliveries'), DELIVERIES, io, setExit);
  addApiGroup(program.command('events'), EVENTS, io, setExit);
  addForKubernetes(program, io, setExit);
  addCompletion(program, io);
  for (const [words, lines] of Object.entries(EXAMPLES)) findCommand(program, words).addHelpText('after', toExampleText(lines));
  for (const group of program.commands.filter(({ commands }) => commands.length > 0)) {
    const lines = group.commands.flatMap((each) => EXAMPLES[`${group.name()} ${each.name()}`]?.[0] ?? []);
    group.addHelpText('after', toExampleText(lines));
  }
  return program;
}

/** Only for the help: main.ts runs these commands without commander. */
function addRunning(program: Command): void {
  withOverrides(program.command('run').description('start sidegate').requiredOption('-c, --config <file>', 'config file')).option(
    '--log-format <format>',
    LOG_FORMAT,
  );
  program
    .command('deliver')
    .description('start only the sending side: send the events that other replicas accepted into the same PostgreSQL')
    .requiredOption('-c, --config <file>', 'config file')
    .option('--admin <hosts:port>', 'where the admin port listens, instead of admin.address')
    .option('--log-format <format>', LOG_FORMAT);
}

/** Adds `check`. */
function addCheck(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(withOverrides(program.command('check')), REPORTS.check)
    .description('report all problems of a config; exit 1 if sidegate cannot run with it')
    .argument('[file]', 'config file; - for standard input')
    .option('-c, --config <file>', 'same as the argument')
    .option('--connect', 'also connect to the store, to the apps of all routes and to the databases of queue and outbox')
    .action(async (file, given) =>
      setExit(await runReport(given, REPORTS.check, io, (options, out) => checkFile(file, options, out))),
    );
}

/** Adds the options that override the config. `run` uses them only for its help: main.ts parses its options without commander. */
function withOverrides(command: Command): Command {
  return command
    .option('--listen <hosts:port>', 'where to listen for requests, instead of listen.address; :port for all addresses')
    .option('--admin <hosts:port>', 'where the admin port listens, instead of admin.address')
    .option('--upstream <url>', 'the app of all routes without an upstream')
    .option(
      '--app-probe <container/kind=url>',
      'URL of the app that the admin port requests for a kubelet probe; repeatable',
      COLLECT,
    );
}

/** Adds the commands for Kubernetes. */
function addForKubernetes(program: Command, io: Io, setExit: (code: number) => void): void {
  addInject(program, io, setExit);
  addInjectorCommands(program);
  addSelfTest(program, io, setExit);
  addDoctor(program, io, setExit);
}

/** Only for the help: the entry point runs these commands without commander. */
function addInjectorCommands(program: Command): void {
  for (const [name, description] of [
    ['inject-server', 'run the admission webhook that injects the sidecar into labeled pods'],
    ['rotate-certificates', "renew the injector's CA and certificate, and the caBundle of its webhook"],
  ] as const)
    program
      .command(name)
      .description(description)
      .requiredOption('-c, --config <file>', 'config file of the injector')
      .option('--kubeconfig <file>', 'kubeconfig; default: $KUBECONFIG, ~/.kube/config, or the cluster of this pod')
      .option('--context <name>', 'context of the kubeconfig; default: the current one');
}

function addHashPassword(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('hash-password')
    .description('create an entry for a users file; prompts for the password without echo, or reads it from standard input')
    .argument('[user]', 'user name; default: print only the hash')
    .option('--algorithm <name>', 'bcrypt or argon2id', 'bcrypt')
    .option('--cost <number>', 'cost of bcrypt: each step doubles the time', '12')
    .action(async (user, options) => setExit(await hashPassword(user, options, io)));
}

function addExplain(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('explain'), REPORTS.explain)
    .description('explain why a captured request is rejected; exit 0 if it is valid')
    .argument(
      '[request]',
      'a raw HTTP request, a HAR file, a curl command line or the output of curl --trace; default: standard input',
    )
    .option('-c, --config <file>', 'use the routes and keys of this config')
    .option('--route <name>', 'the route; default: the one that matches the request')
    .option('--scheme <name>', 'use this preset and one secret, without a config')
    .option('--secret-env <name>', 'environment variable with the secret')
    .option('--secret-file <file>', 'file with the secret')
    .option('--encoding <encoding>', 'encoding of the secret: utf8, base64 or hex')
    .option('--public-url <url>', 'the signed URL up to its path')
    .option('--input-format <format>', 'http, har, curl or trace; detected if omitted')
    .option('--entry <number>', 'number of the request in a HAR file')
    .option('--at <seconds>', 'check the timestamp at this Unix time; default: that of the HAR file, or now')
    .action(async (file, given) => {
      setExit(await runReport(given, REPORTS.explain, io, (options, out) => explainRequest(file, options, out)));
    });
}

function addTest(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('test')
    .description('run requests through a config and compare the decisions with the expected ones; exit 1 if one differs')
    .argument('<fixtures...>', 'fixture files (docs/testing.md)')
    .option('--run <pattern>', 'run only tests whose name matches this regular expression')
    .option('--format <format>', 'text, json or junit', 'text')
    .option('-o, --output <file>', 'write the report to this file, and the text to standard output')
    .action(async (files, options) => setExit(await testConfigs(files, options, io)));
}

function addProbe(program: Command, io: Io, setExit: (code: number) => void): void {
  withSecret(program.command('probe'))
    .description('send valid and forged deliveries to one of your endpoints; exit 0 if all checks pass, 1 if one fails')
    .argument('[url]', 'URL of the endpoint, on loopback or in a private network')
    .option('--list', 'list the checks and exit')
    .option('--only <checks>', 'IDs of checks, separated by commas; repeatable', COLLECT)
    .option('--body <file>', 'a sample event; default: an event of type sidegate.probe')
    .option('-H, --header <field>', "header of each request, as 'Name: value'; repeatable", COLLECT)
    .option('--header-env <name=variable>', 'the same, with a secret value from an environment variable; repeatable', COLLECT)
    .option('--public-url <url>', 'the URL to sign, for schemes that sign it; default: the probed URL')
    .option('--tolerance <duration>', 'tolerance of timestamps; default: that of the scheme')
    .option('--count <command>', 'command that prints how often the event $EVENT_ID was handled; sh runs it after all requests')
    .option('--timeout <duration>', 'how long to wait for a response', '20s')
    .option('--parallel <number>', 'number of parallel checks', '4')
    .option('--ca <file>', 'certificates of trusted CAs, PEM')
    .option('--insecure', 'accept any certificate; only for private targets')
    .option('--yes-i-own-this <host>', 'probe this host although its address is public')
    .option('--format <format>', 'text, json or junit', 'text')
    .option('-o, --output <file>', 'write the report to this file, and a summary to standard output')
    .option('--fail-on <severity>', 'exit 1 for failures of at least this severity: critical, major or minor', 'minor')
    .action(async (url, options) => setExit(await probeEndpoint(url, options, io)));
}

function addForget(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('forget')
    .description(
      'make a running sidegate forget an event ID, so that the next valid delivery with it is forwarded; exit 1 if the ID is unknown',
    )
    .requiredOption('-c, --config <file>', 'config file of sidegate, with the admin port and the token')
    .requiredOption('--route <name>', 'the route of the delivery')
    .requiredOption('--id <id>', 'the event ID, as shown by the log and the journal (webhookId)')
    .option('--admin <url>', 'URL of the admin port; default: from the config')
    .option('--ca <file>', 'certificates of trusted CAs, PEM')
    .option('--timeout <duration>', 'how long to wait for the response', '10s')
    .action(async (options) => setExit(await forgetId(options, io)));
}

function addSelfTest(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('self-test')
    .description('act as the sender and the app of a running sidegate, and check what it forwards; exit 1 if that is wrong')
    .requiredOption('--gate <url>', 'URL of a route with scheme standard-webhooks whose app is --app')
    .requiredOption('--secret-file <file>', "file with the route's secret")
    .option('--app <hosts:port>', 'where to listen as the app', '127.0.0.1:8080')
    .option('--wait <duration>', 'how long to wait until sidegate listens', '60s')
    .option('--timeout <duration>', 'how long to wait for each response', '30s')
    .action(async (options) => setExit(await testGate(options, io)));
}

function addSchema(program: Command, io: Io): void {
  program
    .command('schema')
    .description('print the JSON Schema of the config, for editors')
    .option('--fixtures', 'print the schema of fixture files instead')
    .option('-o, --output <file>', 'write the schema to this file')
    .action(async ({ output, ...options }) => {
      await writeReport(output, io, async (out) => printSchema(options, out));
    });
}

function addInit(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('init')
    .description('write a config for your senders and your app, its secrets and what starts sidegate, and check it')
    .argument('[folder]', 'where to write the files; its app is recognized for the default of --app', '.')
    .option('--sender <name>', 'a sender with a preset; repeatable', COLLECT)
    .option('--app <url>', 'URL of the app; default: the usual port of the framework that the folder has, or 3000')
    .option('--redis <url>', 'URL of the Redis that keeps the IDs of events; default: none, each process keeps its own')
    .option('--deploy <how>', 'also write a file for compose, systemd or kubernetes; default: none')
    .action(async (folder, options) => setExit(await initFolder(folder, options, io)));
}

function addScheme(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('scheme')
    .description("print a sender's page: where its secret is, the config, what is verified, how it behaves, how to test it")
    .argument('[name]', 'the preset; default: print the names of all')
    .option('--custom', 'print the preset as a custom scheme instead, to copy and edit')
    .action((name, options) => setExit(printScheme(name, options, io)));
}

function addInject(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('inject'), REPORTS.inject)
    .description('inject the sidecar into labeled pods and pod templates of manifests; exit 1 and print nothing if one is denied')
    .requiredOption('-f, --filename <file>', 'manifests in YAML or JSON; - for standard input; repeatable', COLLECT)
    .option('-c, --config <file>', "the injector's config, with the defaults of sidecars")
    .option('-n, --namespace <name>', 'namespace of objects without one', 'default')
    .option('--kube-version <version>', 'oldest version in the cluster, of API server and kubelets', '1.34')
    .action(async (given) => setExit(await runReport(given, REPORTS.inject, io, injectFiles)));
}

function addDoctor(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('doctor'), REPORTS.doctor)
    .description('report which workloads of a cluster are protected, and what bypasses their sidecars; exit 1 on errors')
    .option('--kubeconfig <file>', 'kubeconfig; default: $KUBECONFIG, ~/.kube/config, or the cluster of this pod')
    .option('--context <name>', 'context of the kubeconfig; default: the current one')
    .option('-n, --namespace <name>', 'default: the namespace of the context')
    .option('-A, --all-namespaces', 'check all namespaces')
    .option('-c, --config <file>', "the injector's config, to find outdated sidecars; default: its ConfigMap")
    .option('--live', 'also ask each running sidecar for its version and config')
    .option('--fail-on <severity>', 'exit 1 for findings of at least this severity: error or warning', 'error')
    .action(async (given) => setExit(await runReport(given, REPORTS.doctor, io, examineCluster)));
}

/** Commands that accept the scheme of a route as well. */
function withSender(command: Command): Command {
  return command
    .option('--scheme <name>', 'the scheme: a preset; default: standard-webhooks')
    .option('-c, --config <file>', 'use the scheme and the keys of a route of this config instead')
    .option('--route <name>', 'the route; default: the only one with a webhook section')
    .option('--secret-env <name>', 'environment variable with the secret; default with --config: the keys of the route')
    .option('--secret-file <file>', 'file with the secret')
    .option('--encoding <encoding>', 'encoding of the secret: utf8, base64 or hex; not needed for whsec_');
}

function withSecret(command: Command): Command {
  return command
    .option('--scheme <name>', 'the scheme: a preset', 'standard-webhooks')
    .option('--secret-env <name>', 'environment variable with the secret')
    .option('--secret-file <file>', 'file with the secret')
    .option('--encoding <encoding>', 'encoding of the secret: utf8, base64 or hex; not needed for whsec_');
}

/** Prints the schema. */
function printSchema({ fixtures }: { readonly fixtures?: boolean }, io: Io): number {
  io.stdout(`${JSON.stringify(fixtures === true ? toFixturesJsonSchema() : toJsonSchema(), undefined, 2)}\n`);
  return EXIT.ok;
}

// The examples in the help of each command.

/** By the words after `sidegate`. */
export const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  run: ['sidegate run --config gate.yaml', 'sidegate run --config gate.yaml --listen :8443 --upstream http://127.0.0.1:3000'],
  deliver: ['sidegate deliver --config gate.yaml'],
  check: ['sidegate check gate.yaml', 'sidegate check --connect gate.yaml', 'envsubst < gate.template.yaml | sidegate check -'],
  sign: [
    'sidegate sign event.json --scheme github --secret-file secret',
    'sidegate sign event.json --config gate.yaml --format curl',
  ],
  send: ['sidegate send http://127.0.0.1:8080/hooks/github event.json --config gate.yaml --route github'],
  verify: ["sidegate verify body.json --scheme github --secret-file secret -H 'X-Hub-Signature-256: sha256=…'"],
  explain: [
    'sidegate explain request.http --config gate.yaml',
    'sidegate explain traffic.har --entry 3 --scheme stripe --secret-file secret',
  ],
  probe: ['sidegate probe http://127.0.0.1:3000/hooks --scheme stripe --secret-env STRIPE_SECRET', 'sidegate probe --list'],
  'hash-password': ['sidegate hash-password alice >> users.htpasswd'],
  test: ['sidegate test fixtures.yaml', 'sidegate test fixtures.yaml --format junit --output report.xml'],
  schema: ['sidegate schema --output gate.schema.json'],
  scheme: ['sidegate scheme', 'sidegate scheme stripe'],
  init: ['sidegate init', 'sidegate init shop --sender stripe --sender github --app http://127.0.0.1:3000'],
  forget: ['sidegate forget --config gate.yaml --route stripe --id evt_1'],
  'requests list': ['sidegate requests list --outcome rejected --from 15m', 'sidegate requests list --route stripe --follow'],
  'requests show': ['sidegate requests show req_1'],
  overview: ['sidegate overview'],
  'logins list': ['sidegate logins list'],
  'logins release': ['sidegate logins release --realm Admin --client 203.0.113.7'],
  'endpoints list': ['sidegate endpoints list'],
  'endpoints show': ['sidegate endpoints show ep_1'],
  'endpoints create': ["sidegate endpoints create --url https://partner.example/hooks --event 'invoice.*' --tenant acme"],
  'endpoints update': ['sidegate endpoints update ep_1 --url https://partner.example/v2/hooks'],
  'endpoints delete': ['sidegate endpoints delete ep_1'],
  'endpoints rotate': ['sidegate endpoints rotate ep_1'],
  'endpoints enable': ['sidegate endpoints enable ep_1'],
  'endpoints disable': ['sidegate endpoints disable ep_1'],
  'endpoints test': ['sidegate endpoints test ep_1'],
  'endpoints stats': ['sidegate endpoints stats ep_1'],
  'deliveries list': ['sidegate deliveries list --state dead --endpoint ep_1'],
  'deliveries show': ['sidegate deliveries show dlv_1'],
  'deliveries retry': ['sidegate deliveries retry dlv_1', 'sidegate deliveries retry --endpoint ep_1 --from 2h --dry-run'],
  'deliveries cancel': ['sidegate deliveries cancel --endpoint ep_1 --type invoice.created'],
  'deliveries purge': ['sidegate deliveries purge --tenant acme --dry-run'],
  'deliveries recover': ['sidegate deliveries recover --endpoint ep_1 --from 24h'],
  'events list': ['sidegate events list --tenant acme --type invoice.created'],
  'events erase': ['sidegate events erase msg_1', 'sidegate events erase --tenant acme'],
  inject: ['sidegate inject -f deployment.yaml | kubectl apply -f -'],
  'inject-server': ['sidegate inject-server --config injector.yaml'],
  'rotate-certificates': ['sidegate rotate-certificates --config injector.yaml'],
  'self-test': ['sidegate self-test --gate http://127.0.0.1:8080/hooks/test --secret-file secret'],
  doctor: ['sidegate doctor --all-namespaces --live', 'sidegate doctor --namespace shop --format json'],
  completion: ['sidegate completion bash > /etc/bash_completion.d/sidegate'],
};

/** The command of these words. */
export function findCommand(program: Command, words: string): Command {
  return words.split(' ').reduce((command, word) => {
    const found = command.commands.find((each) => each.name() === word);
    if (found === undefined) throw new Error(`unknown command ${words}`);
    return found;
  }, program);
}

/** The part of the help after the options. */
function toExampleText(examples: readonly string[]): string {
  return `\nExamples:\n${examples.map((line) => `  $ ${line}`).join('\n')}`;
}
