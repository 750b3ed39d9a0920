/** Commands that use an API of a running sidegate: what each one consists of, and how one runs. */
import type { Command } from 'commander';
import { formatJson, toPrintable } from '../core/text.ts';
import { ApiClient, ApiFailure } from './api-client.ts';
import {
  API_OPTIONS,
  type ApiName,
  type ApiOption,
  type ApiOptions,
  REQUIRED,
  readAuthorization,
  toTarget,
} from './api-options.ts';
import { type Column, formatTable } from './api-output.ts';
import { readCa } from './http-request.ts';
import { toChoice, toTimeout } from './input.ts';
import { EXIT, type Io } from './io.ts';

type SetExit = (code: number) => void;

/** The option of commands that use `print`. */
export const FORMAT: ApiOption = ['--format <format>', 'text or json', 'text'];

/** The input of a running command, and how it prints. */
export interface ApiCall<Options> {
  readonly client: ApiClient;
  readonly options: Options;
  readonly io: Io;
  /** Prints the value as `--format` says. Returns the exit code for success, as the next two do. */
  readonly print: <T>(value: T, toText: (value: T) => string) => number;
  readonly printTable: <Row>(rows: readonly Row[], columns: readonly Column<Row>[]) => number;
  readonly printLine: (text: string) => number;
}

/** A command. */
export interface ApiCommand<Options> {
  readonly description: string;
  /** Default: that of the group. */
  readonly api?: ApiName;
  readonly argument?: readonly [name: string, description?: string];
  /** Besides those of the API. */
  readonly options?: readonly ApiOption[];
  /** Returns the exit code. */
  readonly run: (call: ApiCall<Options>, ...args: string[]) => Promise<number>;
}

/** Commands that share a first word. */
export interface ApiGroup<Options> {
  readonly description: string;
  readonly api: ApiName;
  readonly commands: Readonly<Record<string, ApiCommand<Options>>>;
}

/** Adds a group of commands. */
export function addApiGroup<Options>(parent: Command, group: ApiGroup<Options>, io: Io, setExit: SetExit): void {
  parent.description(group.description);
  for (const [name, command] of Object.entries(group.commands))
    addApiCommand(parent.command(name), { api: group.api, ...command }, io, setExit);
}

/** Makes `command` one that uses an API. */
export function addApiCommand<Options>(
  command: Command,
  { description, api, argument, options = [], run }: ApiCommand<Options> & { readonly api: ApiName },
  io: Io,
  setExit: SetExit,
): void {
  command.description(description);
  if (argument !== undefined) command.argument(...argument);
  for (const [flags, text, value] of [...API_OPTIONS[api], ...options]) {
    if (value === REQUIRED) command.requiredOption(flags, text);
    else if (typeof value === 'function') command.option(flags, text, value);
    else command.option(flags, text, value);
  }
  command.action(async () =>
    setExit(await runCommand(command.opts<ApiOptions & Options>(), api, io, (call) => run(call, ...command.args))),
  );
}

/** Reports failures of the API. */
async function runCommand<Options>(
  options: ApiOptions & Options,
  api: ApiName,
  io: Io,
  run: (call: ApiCall<Options>) => Promise<number>,
): Promise<number> {
  const { format = 'text' } = options;
  toChoice(format, ['text', 'json'], '--format');
  const target = toTarget(api, options);
  const timeout = toTimeout(options.timeout);
  const ca = options.ca === undefined ? undefined : await readCa(options.ca);
  const authorization = await readAuthorization(options, target, io);
  const write = (text: string): number => {
    io.stdout(text);
    return EXIT.ok;
  };
  const print: ApiCall<Options>['print'] = (value, toText) => write(format === 'json' ? formatJson(value) : toText(value));
  try {
    return await run({
      client: new ApiClient({ target, authorization, ca, timeout }),
      options,
      io,
      print,
      printTable: (rows, columns) => print(rows, () => formatTable(rows, columns)),
      printLine: (text) => write(`${toPrintable(text)}\n`),
    });
  } catch (thrown) {
    if (!(thrown instanceof ApiFailure)) throw thrown;
    // Servers, and through them their clients, decide parts of the text.
    io.stderr(`sidegate: ${thrown.message.split('\n').map(toPrintable).join('\n')}\n`);
    return EXIT.failed;
  }
}
