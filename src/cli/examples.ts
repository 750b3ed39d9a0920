/** The examples in the help of each command. */
import type { Command } from 'commander';

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
export function toExampleText(examples: readonly string[]): string {
  return `\nExamples:\n${examples.map((line) => `  $ ${line}`).join('\n')}`;
}
