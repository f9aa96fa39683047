package vrrp
