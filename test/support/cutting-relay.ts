/** A relay to PostgreSQL that ends all its connections once, at the statement that a test chooses. */
import { connect, createServer, type Socket } from 'node:net';
import { startServer } from './fixtures.ts';

/** A relay. */
export interface CuttingRelay {
  readonly port: number;
  /** The statements that clients have sent. */
  readonly statements: Set<string>;
  /** Whether it was cut since `cutAt`. */
  readonly isCut: boolean;
  /** Cuts when a client sends this statement. */
  readonly cutAt: (statement: string) => void;
}

/** Up to the end of its text; parameters follow. */
const STATEMENT = /(?:SELECT|WITH|UPDATE|INSERT|CREATE|BEGIN|COMMIT|SET|LISTEN) [^\0]*/;

/** Starts a relay for the test that runs. */
export async function startCuttingRelay(target: number): Promise<CuttingRelay> {
  const clients = new Set<Socket>();
  const statements = new Set<string>();
  let chosen: string | undefined;
  let isCut = false;
  const port = await startServer(
    createServer((client) => {
      const server = connect(target, '127.0.0.1');
      clients.add(client);
      client
        .on('error', () => undefined)
        .on('close', () => {
          clients.delete(client);
          server.destroy();
        });
      server.on('error', () => undefined).on('close', () => client.destroy());
      server.pipe(client);
      client.on('data', (chunk) => {
        const [statement] = STATEMENT.exec(chunk.toString('latin1')) ?? [];
        if (statement !== undefined) statements.add(statement);
        if (statement === undefined || statement !== chosen) return void server.write(chunk);
        chosen = undefined;
        isCut = true;
        for (const each of clients) each.destroy();
      });
    }),
  );
  return {
    port,
    statements,
    get isCut() {
      return isCut;
    },
    cutAt(statement) {
      chosen = statement;
      isCut = false;
    },
  };
}
