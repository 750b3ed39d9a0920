/** `sidegate completion`: scripts for bash, zsh and fish that complete commands, options and their values. */

import type { Command, Option } from 'commander';
import { OUTCOMES } from '../admin/console/stages.ts';
import { usageError } from '../core/errors.ts';
import { SEVERITIES } from '../diagnostics/probe/check.ts';
import { DELIVERY_STATES } from '../provider/queue/delivery-queue.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { CAPTURE_FORMATS } from './explain.ts';
import { DEPLOYMENTS } from './init.ts';
import type { Io } from './io.ts';
import { REPORTS } from './output.ts';
import { isOfSender } from './sender-page.ts';

/** The values of options, in all commands. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  '--scheme': PRESETS.map(({ name }) => name),
  '--sender': PRESETS.filter(isOfSender).map(({ name }) => name),
  '--deploy': DEPLOYMENTS,
  '--encoding': ['utf8', 'base64', 'hex'],
  '--algorithm': ['bcrypt', 'argon2id'],
  '--input-format': CAPTURE_FORMATS,
};
/** The values of options, in one command. */
const VALUES_OF_COMMAND: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(Object.entries(REPORTS).map(([command, formats]) => [`${command} --format`, formats])),
  'test --format': ['text', 'json', 'junit'],
  'probe --format': ['text', 'json', 'junit'],
  'probe --fail-on': SEVERITIES,
  'doctor --fail-on': ['error', 'warning'],
  'endpoints --format': ['text', 'json'],
  'deliveries --format': ['text', 'json'],
  'events --format': ['text', 'json'],
  'logins --format': ['text', 'json'],
  'overview --format': ['text', 'json'],
  'requests --format': ['text', 'json'],
  'requests --outcome': OUTCOMES,
  'deliveries --state': DELIVERY_STATES,
};

const SHELLS: Readonly<Record<string, (program: Command) => string>> = { bash: toBash, zsh: toZsh, fish: toFish };

/** Adds the command; it prints a script for the program that it is added to. */
export function addCompletion(program: Command, io: Io): void {
  program
    .command('completion')
    .description('print a script that completes commands and options in your shell')
    .argument('<shell>', 'bash, zsh or fish')
    .action((shell: string) => {
      const write = SHELLS[shell];
      if (write === undefined) throw usageError(`unknown shell ${shell}; use one of ${Object.keys(SHELLS).join(', ')}`);
      io.stdout(write(program));
    });
}

interface Completed {
  readonly name: string;
  readonly description: string;
  /** Of a group: the options of all its commands. */
  readonly options: readonly Option[];
  /** The commands of a group. */
  readonly members: readonly string[];
}

function toCompleted({ commands }: Command): Completed[] {
  return commands.map((command) => {
    const all = [command, ...command.commands].flatMap(({ options }) => options.filter(({ hidden }) => !hidden));
    const options = all.filter(({ long }, index) => all.findIndex((other) => other.long === long) === index);
    const members = command.commands.map((member) => member.name());
    return { name: command.name(), description: command.description(), options, members };
  });
}

function toFlags({ short, long }: Option): string[] {
  return [short, long].filter((flag) => flag !== undefined && flag !== null);
}

function toValues(command: string, { long = '' }: Option): readonly string[] {
  return VALUES_OF_COMMAND[`${command} ${long}`] ?? VALUES[long ?? ''] ?? [];
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function toBash(program: Command): string {
  const commands = toCompleted(program);
  const values = commands.flatMap(({ name, options }) =>
    options.flatMap((option) => {
      const allowed = toValues(name, option);
      return allowed.length === 0 ? [] : [`    ${quote(`${name} ${option.long}`)}) words=${quote(allowed.join(' '))} ;;`];
    }),
  );
  const flags = commands.map(({ name, options }) => `      ${name}) words=${quote(options.flatMap(toFlags).join(' '))} ;;`);
  const groups = commands.filter(({ members }) => members.length > 0);
  const members = groups.map(({ name, members: words }) => `    ${name}) words=${quote(words.join(' '))} ;;`);
  return `# To enable it in this shell: source <(sidegate completion bash)
_sidegate() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} command=\${COMP_WORDS[1]} words=
  if ((COMP_CWORD == 1)); then
    words=${quote([...commands.map(({ name }) => name), 'help', '--help', '--version'].join(' '))}
  elif ((COMP_CWORD == 2)) && [[ $cur != -* && " ${groups.map(({ name }) => name).join(' ')} " == *" $command "* ]]; then case $command in
${members.join('\n')}
  esac
  else case "$command $prev" in
${values.join('\n')}
    *) if [[ $cur == -* ]]; then case $command in
${flags.join('\n')}
    esac; fi ;;
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _sidegate sidegate
`;
}

function toZsh(program: Command): string {
  const commands = toCompleted(program);
  const names = commands.map(({ name, description }) => `    ${quote(`${name}:${description}`)}`);
  const cases = commands.map(({ name, options, members }) => {
    const specs = options.flatMap((option) => toFlags(option).map((flag) => `      ${quote(toZshSpec(name, option, flag))}`));
    const rest = members.length === 0 ? [] : [`      ${quote(`1:command:(${members.join(' ')})`)}`];
    return `    ${name}) _arguments -s \\\n${[...specs, ...rest, "      '*:file:_files'"].join(' \\\n')} ;;`;
  });
  return `#compdef sidegate
# To enable it in this shell, after compinit: source <(sidegate completion zsh)
_sidegate() {
  local -a commands
  commands=(
${names.join('\n')}
  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
${cases.join('\n')}
  esac
}
compdef _sidegate sidegate
`;
}

/** A long option takes its value after `=` or as the next word; `*` marks repeatable options. */
function toZshSpec(command: string, option: Option, flag: string): string {
  const text = option.description.replaceAll(/[[\]:\\]/g, (sign) => `\\${sign}`);
  if (!option.required && !option.optional) return `*${flag}[${text}]`;
  const values = toValues(command, option);
  const isLong = flag.startsWith('--');
  return `*${flag}${isLong ? '=' : '+'}[${text}]:value:${values.length > 0 ? `(${values.join(' ')})` : '_files'}`;
}

function toFish(program: Command): string {
  const commands = toCompleted(program);
  const names = commands.map(
    ({ name, description }) => `complete -c sidegate -n __fish_use_subcommand -f -a ${name} -d ${quoteFish(description)}`,
  );
  const options = commands.flatMap(({ name, options: all }) => all.map((option) => toFishLine(name, option)));
  const members = commands
    .filter(({ members: words }) => words.length > 0)
    .map(({ name, members: words }) => {
      const list = words.join(' ');
      const condition = `__fish_seen_subcommand_from ${name}; and not __fish_seen_subcommand_from ${list}`;
      return `complete -c sidegate -n '${condition}' -f -a ${quoteFish(list)}`;
    });
  return `# To enable it in this shell: sidegate completion fish | source\n${[...names, ...members, ...options].join('\n')}\n`;
}

function toFishLine(command: string, option: Option): string {
  const flags = toFlags(option).map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
  const values = toValues(command, option);
  const argument = values.length > 0 ? ` -x -a ${quoteFish(values.join(' '))}` : option.required || option.optional ? ' -r' : '';
  return `complete -c sidegate -n '__fish_seen_subcommand_from ${command}' ${flags.join(' ')}${argument} -d ${quoteFish(option.description)}`;
}

/** In single quotes, fish interprets only escaped quotes and backslashes. */
function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, (sign) => `\\${sign}`)}'`;
}
