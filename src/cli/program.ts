/** The commands beside `run`, on commander. */
import type { Command } from 'commander';
import { COLLECT, createBaseProgram, parseCommand } from './base-program.ts';
import { addCheck, withOverrides } from './check-command.ts';
import { addCompletion } from './completion.ts';
import { examineCluster } from './doctor.ts';
import { explainRequest, readCaptureFormat } from './explain.ts';
import { forgetId } from './forget.ts';
import { hashPassword } from './hash-password.ts';
import { injectFiles } from './inject.ts';
import type { Io } from './io.ts';
import { REPORTS, runReport, withReport, writeReport } from './output.ts';
import { probeEndpoint } from './probe.ts';
import { printSchema } from './schema.ts';
import { testGate } from './self-test.ts';
import { sendDelivery } from './send.ts';
import { signDelivery } from './sign.ts';
import { testConfigs } from './test.ts';
import { verifyDelivery } from './verify.ts';

/** Runs one command; the result is the exit code. */
export function runProgram(argv: readonly string[], io: Io): Promise<number> {
  return parseCommand((setExit) => createProgram(io, setExit), argv, io);
}

/** The program with all its commands; `setExit` is told how one ended. */
export function createProgram(io: Io, setExit: (code: number) => void): Command {
  const program = createBaseProgram(io);
  program.description('An authenticating reverse proxy beside your app: only verified webhooks get through, each one once.');
  withOverrides(program.command('run').description('start the gate').requiredOption('-c, --config <file>', 'config file'));
  addCheck(program, io, setExit);
  withReport(withSecret(program.command('sign')), REPORTS.sign)
    .description('sign a body and print its headers')
    .argument('[file]', 'file with the body; standard input if left out')
    .option('--id <id>', "the delivery's id; random if left out")
    .option('--timestamp <seconds>', 'its time in unix seconds; now if left out')
    .option('--public-url <url>', 'the URL that is signed, for schemes that sign it')
    .option('--url <url>', 'where the curl line sends to')
    .action(async (file, given) =>
      setExit(await runReport(given, REPORTS.sign, io, (options, out) => signDelivery(file, options, out))),
    );
  withSecret(program.command('send'))
    .description('sign a body and POST it; exit 0 if the answer is 2xx')
    .argument('<url>', 'where to')
    .argument('[file]', 'file with the body; standard input if left out')
    .option('--id <id>', "the delivery's id; random if left out")
    .option('--timestamp <seconds>', 'its time in unix seconds; now if left out')
    .option('--public-url <url>', 'the URL that is signed, for schemes that sign it; left out: the one it is sent to')
    .option('--timeout <duration>', 'how long to wait for the answer', '30s')
    .action(async (url, file, options) => setExit(await sendDelivery(url, file, options, io)));
  withSecret(program.command('verify'))
    .description('check a signed body and explain the verdict; exit 0 if it is genuine')
    .argument('[file]', 'file with the body, byte for byte; standard input if left out')
    .requiredOption('-H, --header <field>', "a header as 'Name: value'; repeat for each", COLLECT)
    .option('--method <method>', 'of the request, for schemes that sign it', 'POST')
    .option('--public-url <url>', 'the URL that is signed, for schemes that sign it')
    .option('--tolerance <duration>', "how far the timestamp may lie off; the scheme's if left out")
    .option('--at <seconds>', 'judge the timestamp as of this unix time; now if left out')
    .action(async (file, options) => setExit(await verifyDelivery(file, options, io)));
  addExplain(program, io, setExit);
  addProbe(program, io, setExit);
  addHashPassword(program, io, setExit);
  addTest(program, io, setExit);
  addSchema(program, io);
  addForget(program, io, setExit);
  addForKubernetes(program, io, setExit);
  addCompletion(program, io);
  return program;
}

/** What brings gates into a cluster's pods, and tells whether they are there. */
function addForKubernetes(program: Command, io: Io, setExit: (code: number) => void): void {
  addInject(program, io, setExit);
  addInjectorCommands(program);
  addSelfTest(program, io, setExit);
  addDoctor(program, io, setExit);
}

/** Shown in the help alone: the entry point starts them without commander. */
function addInjectorCommands(program: Command): void {
  for (const [name, description] of [
    ['inject-server', 'answer the API server: put the sidecar into pods that ask for it'],
    ['rotate-certificates', "keep the injector's CA, its certificate and the caBundle of its webhook"],
  ] as const)
    program.command(name).description(description).requiredOption('-c, --config <file>', 'config file of the injector');
}

function addHashPassword(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('hash-password')
    .description('make an entry for a users file; reads the password from the terminal unseen, or from standard input')
    .argument('[user]', 'prints user:hash; the hash alone if left out')
    .option('--algorithm <name>', 'bcrypt or argon2id', 'bcrypt')
    .option('--cost <number>', 'of bcrypt: each step doubles the work', '12')
    .action(async (user, options) => setExit(await hashPassword(user, options, io)));
}

function addExplain(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('explain'), REPORTS.explain)
    .description('tell why a captured request is refused; exit 0 if it is genuine')
    .argument(
      '[request]',
      'a raw HTTP request, a HAR file, a curl command line or what curl --trace wrote; standard input if left out',
    )
    .option('-c, --config <file>', 'judge by the routes and keys of this config')
    .option('--route <name>', 'the route; left out: the one that takes the request')
    .option('--scheme <name>', 'judge by this preset and one secret, without a config')
    .option('--secret-env <name>', 'environment variable that holds the secret')
    .option('--secret-file <file>', 'file that holds the secret')
    .option('--encoding <encoding>', 'how the secret is written: utf8, base64 or hex')
    .option('--public-url <url>', 'what stands before the path in the URL that is signed')
    .option('--input-format <format>', 'http, har, curl or trace; detected if omitted')
    .option('--entry <number>', 'which request of a HAR file')
    .option('--at <seconds>', 'judge the time as of this unix time; left out: that of the HAR file, or now')
    .action(async (file, given) => {
      const read = readCaptureFormat(given, io);
      setExit(await runReport(read, REPORTS.explain, io, (options, out) => explainRequest(file, options, out)));
    });
}

function addTest(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('test')
    .description('play requests through a config and hold the verdicts against what is expected; exit 1 if one differs')
    .argument('<fixtures...>', 'fixture files (docs/testing.md)')
    .option('--run <pattern>', 'only the tests whose name matches this regular expression')
    .option('--format <format>', 'text, json or junit', 'text')
    .option('-o, --output <file>', 'write the report to this file, and the text to standard output')
    .action(async (files, options) => setExit(await testConfigs(files, options, io)));
}

function addProbe(program: Command, io: Io, setExit: (code: number) => void): void {
  withSecret(program.command('probe'))
    .description('try an endpoint of yours with genuine and forged deliveries; exit 0 if all checks hold, 1 if one fails')
    .argument('[url]', 'the endpoint; on loopback or in a private network')
    .option('--list', 'show the checks and do nothing')
    .option('--only <checks>', 'ids of checks, with commas between; repeat for more', COLLECT)
    .option('--body <file>', 'a sample event; a harmless one of type sidegate.probe if left out')
    .option('-H, --header <field>', "sent with each request, as 'Name: value'; repeat for more", COLLECT)
    .option('--header-env <name=variable>', 'the same, with a value that nobody should see', COLLECT)
    .option('--public-url <url>', 'the URL that is signed, for schemes that sign it; left out: the one probed')
    .option('--tolerance <duration>', "how far a timestamp may lie off; the scheme's if left out")
    .option('--count <command>', 'prints how often the event $EVENT_ID was handled; run by sh after all requests')
    .option('--timeout <duration>', 'how long to wait for an answer', '20s')
    .option('--parallel <number>', 'how many checks at once', '4')
    .option('--ca <file>', 'certificates of the authorities to trust, PEM')
    .option('--insecure', 'take any certificate; private targets only')
    .option('--yes-i-own-this <host>', 'probe this host, though its address is public')
    .option('--format <format>', 'text, json or junit', 'text')
    .option('-o, --output <file>', 'write the report to this file, and a summary to standard output')
    .option('--fail-on <severity>', 'exit 1 for failures of this severity or a worse one: critical, major, minor', 'minor')
    .action(async (url, options) => setExit(await probeEndpoint(url, options, io)));
}

function addForget(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('forget')
    .description('make a running gate forget an id, so that its next genuine delivery is let through; exit 1 if it knows none')
    .requiredOption('-c, --config <file>', "the gate's config file: it names the admin port and the token")
    .requiredOption('--route <name>', 'the route that the delivery came by')
    .requiredOption('--id <id>', 'the id, as the log and the journal show it (webhookId)')
    .option('--admin <url>', "another way to the admin port; the config's if left out")
    .option('--timeout <duration>', 'how long to wait for the answer', '10s')
    .action(async (options) => setExit(await forgetId(options, io)));
}

function addSelfTest(program: Command, io: Io, setExit: (code: number) => void): void {
  program
    .command('self-test')
    .description('be the app behind a gate and the sender before it, and check what it lets through; exit 1 if that is wrong')
    .requiredOption('--gate <url>', 'where to send: a route of the gate whose app is --app, by Standard Webhooks')
    .requiredOption('--secret-file <file>', "file that holds the route's secret")
    .option('--app <hosts:port>', 'where to listen as the app', '127.0.0.1:8080')
    .option('--wait <duration>', 'how long to wait for the gate to listen', '60s')
    .option('--timeout <duration>', 'how long to wait for each answer', '30s')
    .action(async (options) => setExit(await testGate(options, io)));
}

function addSchema(program: Command, io: Io): void {
  program
    .command('schema')
    .description('print the JSON Schema of the config, for editors')
    .option('--fixtures', 'that of fixture files instead')
    .option('-o, --output <file>', 'write the schema to this file')
    .action(async ({ output, ...options }) => {
      await writeReport(output, io, async (out) => printSchema(options, out));
    });
}

function addInject(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('inject'), REPORTS.inject)
    .description('put the sidecar into labelled pods and pod templates of manifests; exit 1 and print nothing if one is denied')
    .requiredOption('-f, --filename <file>', 'manifests, YAML or JSON; - for standard input; repeat for more', COLLECT)
    .option('-c, --config <file>', "the injector's config: what sidecars are like where a pod does not say otherwise")
    .option('-n, --namespace <name>', 'of objects that name none', 'default')
    .option('--kube-version <version>', 'the oldest of the cluster: API server and kubelets', '1.34')
    .action(async (given) => setExit(await runReport(given, REPORTS.inject, io, injectFiles)));
}

function addDoctor(program: Command, io: Io, setExit: (code: number) => void): void {
  withReport(program.command('doctor'), REPORTS.doctor)
    .description('tell which workloads of a cluster are protected, and what leads past their sidecars; exit 1 if something does')
    .option('--kubeconfig <file>', "left out: $KUBECONFIG, ~/.kube/config, or the pod's own cluster")
    .option('--context <name>', 'a context of the kubeconfig; its current one if left out')
    .option('-n, --namespace <name>', "the context's if left out")
    .option('-A, --all-namespaces', 'look into all of them')
    .option('-c, --config <file>', "the injector's config, by which sidecars are stale or not; its ConfigMap if left out")
    .option('--live', 'also ask each running sidecar which config it serves')
    .option('--fail-on <severity>', 'exit 1 for findings of this severity or a worse one: error or warning', 'error')
    .action(async (given) => setExit(await runReport(given, REPORTS.doctor, io, examineCluster)));
}

function withSecret(command: Command): Command {
  return command
    .option('--scheme <name>', 'who signs: a preset of the config', 'standard-webhooks')
    .option('--secret-env <name>', 'environment variable that holds the secret')
    .option('--secret-file <file>', 'file that holds the secret')
    .option('--encoding <encoding>', 'how the secret is written: utf8, base64 or hex; whsec_ needs none');
}
