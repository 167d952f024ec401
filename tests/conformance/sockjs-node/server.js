// sockjs-node with the endpoints of the SockJS suite: node server.js FOLDER, where FOLDER has it installed.
// It says its port, and ends when its input does.
'use strict';

const http = require('http');
const path = require('path');
const sockjs = require(path.join(path.resolve(process.argv[2]), 'node_modules', 'sockjs'));

const server = http.createServer((request, response) => {
  response.writeHead(404);
  response.end();
});

function endpoint(name, behaviour, options) {
  const service = sockjs.createServer({
    sockjs_url: '/sockjs.min.js',
    response_limit: 4096,
    log: () => {},
    ...options,
  });
  service.on('connection', (connection) => connection && behaviour(connection));
  service.installHandlers(server, { prefix: '/' + name });
}

const echo = (connection) => connection.on('data', (message) => connection.write(message));
const goAway = (connection) => connection.close(3000, 'Go away!');

endpoint('echo', echo, {});
endpoint('close', goAway, {});
endpoint('cookie', echo, { jsessionid: true });
endpoint('no_websocket', echo, { websocket: false });
endpoint('hasty', echo, { heartbeat_delay: 100, disconnect_delay: 300 });

server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
